import pickle
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from audited import QUICK

from lrptrain.auditing import AuditSettings, registered_tests
from lrptrain.auditing.audit import AUDITED_METHODS
from lrptrain.auditing.base import select_tests
from lrptrain.cli.audit import audit_checkpoint
from lrptrain.cli.audit_settings import CliAuditSettings


def test_every_setting_of_a_test_is_one_of_the_audit():
    settings = {name for test in registered_tests() for name in vars(test)}
    assert set(vars(AuditSettings())) == settings
    assert "frozen_steps" in settings
    assert all(f"    {name}: " in (AuditSettings.__doc__ or "") for name in settings)


def test_settings_reach_the_tests():
    tests = {test.name: vars(test) for test in select_tests(["frozen", "adversary"], AuditSettings(frozen_steps=7))}
    assert tests["frozen"] == {"frozen_steps": 7}
    assert tests["adversary"]["frozen_steps"] == 7
    assert tests["adversary"]["adversary_steps"] == AuditSettings().adversary_steps


def test_settings_can_be_pickled_and_compared():
    assert pickle.loads(pickle.dumps(QUICK)) == QUICK != AuditSettings()


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="shuffle"):
        AuditSettings(shuffle=3)


def test_the_options_of_the_command_line_are_the_settings():
    """They are read from the tests' source, which is not imported for a help."""

    def declared(settings: Any) -> set[Any]:
        kinds = get_type_hints(settings)
        return {(each.name, kinds[each.name], each.default) for each in fields(settings)}

    assert declared(CliAuditSettings) == declared(AuditSettings)
    assert {*(CliAuditSettings.__doc__ or "").splitlines()} == {*(AuditSettings.__doc__ or "").splitlines()}
    text = " ".join((audit_checkpoint.__doc__ or "").replace(" and ", ", ").split())
    assert f"else {', '.join(AUDITED_METHODS)}." in text
