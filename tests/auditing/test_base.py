"""The registry of tests, and a new test: one class, which the audit, its files and its plots take everything from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from audited import DECIDING, METHODS, QUICK, batches, model, only

import lrptrain.auditing.checks
from lrptrain.auditing import (
    AuditTest,
    Check,
    Column,
    register,
    registered_tests,
    unregister,
)
from lrptrain.auditing.audit import run_audit
from lrptrain.auditing.base import select_tests
from lrptrain.auditing.context import AuditContext, predict_batches
from lrptrain.auditing.plots import BLUE, saved_plot
from lrptrain.auditing.report import audit_scalars, verdict_table, write_audit_report
from lrptrain.metrics import rank_correlation
from lrptrain.relevance import attribute


class RepeatabilityTest(AuditTest):
    """Whether a method gives the same map when it is asked again."""

    name = "repeatability"
    order = 35
    decides_verdict = True
    columns = (Column("repeatability", values="correlation", higher_is_better=True, logged_as="repeatability"),)

    def run(self, context, unit):
        (batch,) = context.batches
        first = context.maps(unit)[0].scores
        other = attribute(context.model, batch.inputs, batch.target, unit).scores.detach()
        return {"correlation": rank_correlation(first, other, first == first).tolist()}

    def check(self, score):
        return Check(score.value > 0.99, f"it repeats itself: {score}", decisive=True)

    def plot(self, result, folder):
        scores = [result.column_score(self, method).value for method in result.methods]
        with saved_plot(folder / "repeatability.png", self.name) as (_, axes):
            axes.bar(result.methods, scores, color=BLUE)


@pytest.fixture
def registered_class():
    register(RepeatabilityTest)
    yield
    unregister("repeatability")


@pytest.mark.usefixtures("registered_class")
def test_a_new_test_is_one_class(tmp_path):
    settings = only(*DECIDING, "repeatability")
    result = run_audit(model(), batches(sizes=(10,)), METHODS, budget=600, settings=settings, folder=tmp_path)
    # its units, in its place
    units = [unit.title for unit in result.units if not unit.problem]
    assert len(units) == 12
    assert [unit for unit in units if "repeat" in unit] == [f"repeatability of {method}" for method in METHODS]
    assert units.index("repeatability of random") < units.index("randomisation of random")
    assert result.values("repeatability", "random")["correlation"] == pytest.approx([1.0] * 10)
    # its column, its number for loggers and its clause of the verdict
    head = verdict_table(result).splitlines()[0]
    assert head.index("tau, leave-one-out ↑") < head.index("repeatability ↑") < head.index("lost weights ↓")
    assert audit_scalars(result)["audit/random/repeatability"] == pytest.approx(1.0)
    assert all("it repeats itself: 1.00 [1.00, 1.00]" in str(verdict) for verdict in result.verdicts)
    # its plot
    write_audit_report(result, tmp_path)
    assert '<img alt="repeatability"' in (tmp_path / "audit.html").read_text(encoding="utf-8")
    # what its values depend on is a part of their key
    keys = [json.loads(line)["key"] for line in (tmp_path / "units.jsonl").read_text(encoding="utf-8").splitlines()]
    assert keys[0].endswith(" perturbation raw_attention {'seed': 0, 'random_maps': 1, 'fill': 0.0}")
    assert keys[-1].endswith(" randomisation random {'seed': 0, 'stages': 1}")


def test_a_test_that_was_removed_is_gone():
    assert "repeatability" not in [test.name for test in registered_tests()]
    with pytest.raises(ValueError, match=r"unknown tests \['repeatability'\]"):
        select_tests(["repeatability"])


def test_every_file_of_the_folder_registers_tests_of_orders_of_their_own():
    (folder,) = lrptrain.auditing.checks.__path__
    names = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    assert {type(test).__module__.rpartition(".")[2] for test in registered_tests()} == names
    assert len({test.order for test in registered_tests()}) == len(registered_tests())


@pytest.mark.parametrize("test", [each for each in registered_tests() if each.columns], ids=lambda test: test.name)
def test_the_columns_of_a_test_show_what_it_measures(test):
    """A column of a name that the test does not give would stay empty, and nobody would know."""
    values: dict[str, Any] = {}
    for kind in ("vit", "bert"):
        samples = batches(kind, sizes=(3,))
        if kind == "vit":
            samples[0]["mask"] = torch.ones(3, *samples[0]["image"].shape[2:], dtype=torch.uint8).tril()
        net = model(kind)
        audit = AuditContext(net, predict_batches(net, samples), METHODS[:2], settings=QUICK)
        values |= {} if test.obstacle(audit) else test.run(audit, METHODS[0])
    for column in test.columns:
        for name in filter(None, (column.values, column.chance)):
            assert len(values[name]) in (1, 3), name


def test_a_name_is_taken_once():
    test = registered_tests()[0]
    with pytest.raises(ValueError, match="already an audit test called 'perturbation'"):
        register(type(test))
    assert registered_tests()[0] is test


def test_those_that_decide_come_first_and_the_agreement_of_all_last():
    tests = registered_tests()
    assert [test.decides_verdict for test in tests] == sorted((test.decides_verdict for test in tests), reverse=True)
    assert not tests[-1].columns
