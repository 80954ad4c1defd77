import numpy as np

from lrptrain.findings.scopes import scopes


def test_all_samples_classes_and_groups():
    labels, groups = np.array([0, 0, 2, 2]), np.array([1, 0, 1, -1])
    found = {scope.name: scope.member.tolist() for scope in scopes(labels, ["a", "b", "c"], groups)}
    assert found == {
        "overall": [True] * 4,
        "a": [True, True, False, False],
        "c": [False, False, True, True],
        "group 0": [False, True, False, False],
        "group 1": [True, False, True, False],
    }


def test_only_present_samples_and_several_groups_count():
    present = np.array([True, True, False, False])
    found = scopes(np.array([0, 0, 1, 1]), ["a", "b"], np.array([0, 0, 1, 1]), present)
    assert [scope.name for scope in found] == ["overall", "a"]
