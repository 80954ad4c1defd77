import pickle

import pytest
from audited import QUICK

from lrptrain.auditing import AuditSettings, registered_tests
from lrptrain.auditing.base import select_tests


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
