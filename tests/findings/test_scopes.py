import json

import numpy as np
import pytest

from lrptrain.findings.scopes import Scope, split_into_scopes


def test_all_samples_classes_and_groups():
    labels, groups = np.array([0, 0, 2, 2]), np.array([1, 0, 1, -1])
    found = {str(scope): member.tolist() for scope, member in split_into_scopes(labels, ["a", "b", "c"], groups)}
    assert found == {
        "overall": [True] * 4,
        "class a": [True, True, False, False],
        "class c": [False, False, True, True],
        "group 0": [False, True, False, False],
        "group 1": [True, False, True, False],
    }


def test_only_present_samples_and_several_groups_count():
    present = np.array([True, True, False, False])
    found = split_into_scopes(np.array([0, 0, 1, 1]), ["a", "b"], np.array([0, 0, 1, 1]), present)
    assert [str(scope) for scope, _ in found] == ["overall", "class a"]


CLASSES = ["dog", "overall", "overalls", "group 1", "group of seven", "class a"]


@pytest.mark.parametrize("scope", [Scope(), Scope("group", "1"), *(Scope("class", name) for name in CLASSES)])
def test_a_scope_survives_json_whatever_a_class_is_called(scope):
    assert Scope.from_dict(json.loads(json.dumps(scope.to_dict()))) == scope


def test_records_say_a_class_by_its_name():
    assert Scope("class", "dog").to_dict() == {"scope": "dog", "scope_kind": "class"}
    assert Scope("group", "1").to_dict() == {"scope": "group 1", "scope_kind": "group"}
    assert Scope().to_dict() == {"scope": "overall", "scope_kind": "overall"}


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("overall", Scope()),
        ("dog", Scope("class", "dog")),
        ("overalls", Scope("class", "overalls")),
        ("group 12", Scope("group", "12")),
        ("group of seven", Scope("class", "group of seven")),
    ],
)
def test_older_records_have_no_kind_of_scope(text, scope):
    assert Scope.from_dict({"scope": text}) == scope


def test_a_class_called_overall_has_its_own_samples():
    found = dict(split_into_scopes(np.array([0, 1, 1]), ["overall", "b"]))
    assert found[Scope()].tolist() == [True, True, True]
    assert found[Scope("class", "overall")].tolist() == [True, False, False]
