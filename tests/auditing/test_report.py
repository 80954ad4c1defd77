import json
import math

import numpy as np
import pytest
from PIL import Image

from lrptrain.auditing import AuditResult, UnitResult, reach_verdict, registered_tests
from lrptrain.auditing.checks.adversary import adversary_differences
from lrptrain.auditing.report import audit_scalars, markdown, sentences, verdict_table, write_audit_report

SPREAD = np.linspace(-0.05, 0.05, 20)
GAINS = {"attnlrp": 0.4, "raw_attention": 0.1, "random": 0.0}


def result(**changed):
    """An audit with made-up values."""
    units, verdicts = [], []
    for method, gain in GAINS.items():
        values = {
            "perturbation": list(gain + SPREAD),
            "leave_one_out": list(gain / 2 + SPREAD),
            "randomisation": [0.1] * 20,
        }
        verdicts.append(reach_verdict(method, registered_tests(), values))
        names = {"perturbation": "gain", "leave_one_out": "tau", "randomisation": "left"}
        units += [UnitResult(test, method, {names[test]: values[test]}, 1.0) for test in names]
    ones, zeros = [1.0] * 20, [0.0] * 20
    apart = {"attnlrp": [0.2] * 20, "raw_attention": [0.1] * 20}
    model = {"right": ones, "right_uniform": zeros, "same": zeros, "tvd": [0.6] * 20, "jsd": [0.3] * 20}
    units += [
        UnitResult("uniform", "", model | changed.get("uniform", {})),
        UnitResult("permutation", "", {"median_tvd": list(0.2 + SPREAD), "largest_weight": list(0.5 + SPREAD)}),
        UnitResult("adversarial", "", {"jsd": [0.5] * 15 + [0.0] * 5, "change": zeros}),
        UnitResult("agreement", "", {"methods": list(GAINS), "matrix": np.eye(3).tolist()}),
        UnitResult("frozen", "uniform", {"right": zeros}),
        UnitResult("frozen", "attnlrp", {"right": ones}),
        UnitResult("seeds", "1", {"right": ones, "tvd": [0.1] * 20, "jsd": apart}),
        UnitResult("seeds", "2", problem="not run: the budget of 9 s is used up"),
        UnitResult("adversary", "attnlrp @ 0.1", {"tvd": [0.01] * 20, "jsd": [0.3] * 20}),
        UnitResult("adversary", "attnlrp @ 1", {"tvd": [0.4] * 20, "jsd": [0.6] * 20}),
        UnitResult("adversary", "raw_attention @ 1", {"tvd": [0.4] * 20, "jsd": [0.6] * 20}),
        UnitResult("adversary", "raw_attention @ 2", problem="not run: the budget of 9 s is used up"),
    ]  # fmt: skip
    about = {"samples": 20, "classes": 2, "accuracy": 0.9, "predicted": [0, 1], "labels": [0, 1]}
    return AuditResult(tuple(GAINS), tuple(units), tuple(verdicts), ("Of few samples.",), about, 9.0, 8.0)


def test_the_table_has_the_best_first_and_no_empty_column():
    lines = verdict_table(result()).splitlines()
    heads = [head.strip() for head in lines[0].split("|")[1:6]]
    assert heads == ["method", "faithful", "gain over random ↑", "tau, leave-one-out ↑", "lost weights ↓"]
    assert [line.split()[1] for line in lines[2:]] == ["attnlrp", "raw_attention", "random"]
    assert "0.400 [0.39, 0.41]" in lines[2]
    assert len({len(line) for line in lines}) == 1


def test_everything_is_said_once():
    text = markdown(result())
    assert "20 samples, 90% of them classified correctly" in text
    assert "- random: faithful on this model: no (its order does not beat random orders" in text
    assert "- Of few samples." in text
    assert "- seeds of 2, adversary of raw_attention @ 2: not run: the budget of 9 s is used up" in text


def test_what_attention_says_in_words():
    lines = sentences(result())
    assert "classifies 0% of the samples correctly instead of 100%" in lines[0]
    assert "it needs its attention" in lines[0]
    assert "it matters which token has which weight" in lines[1]
    assert "For 75% of the samples" in lines[2]
    assert "attnlrp 100%" in lines[3]
    assert "attnlrp 0.20, raw_attention 0.10" in lines[4]
    assert "attnlrp: an adversary with the same output" in lines[5]
    assert "0.30" in lines[5]
    assert "raw_attention: no adversary was found with the same output" in lines[6]


@pytest.mark.parametrize(
    ("values", "meant"),
    [
        ({"right_uniform": [1.0] * 20}, "is moot"),
        ({"right_uniform": [0.0, 1.0] + [1.0] * 18}, "too few samples to tell"),
        ({"right": [], "right_uniform": []}, "keeps 0% of its predictions"),
    ],
)
def test_uniform_attention_in_words(values, meant):
    assert meant in sentences(result(uniform=values))[0]


def test_files_and_pictures(tmp_path):
    write_audit_report(result(), tmp_path)
    saved = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert saved["verdicts"][0]["numbers"]["perturbation"]["samples"] == 20
    assert saved["sentences"] == sentences(result())
    assert saved["tests"]["perturbation"] == {
        "title": "perturbation against random orders", "number": "gain over random orders", "range": [-0.2, 1.0]
    }  # fmt: skip
    assert {"test": "seeds", "of": "2"}.items() <= saved["units"][-5].items()
    pictures = {path.stem for path in tmp_path.glob("*.png")}
    assert pictures == {"gains", "agreement", "permutation", "adversary_attnlrp", "adversary_raw_attention"}
    for path in tmp_path.glob("*.png"):
        assert np.asarray(Image.open(path).convert("L")).std() > 5


def test_adversaries_by_method_and_strength():
    found = adversary_differences(result())
    assert found["attnlrp"].keys() == {0.1, 1.0}
    assert found["attnlrp"][1.0] == pytest.approx((0.4, 0.6))


def test_scalars_of_what_was_judged():
    logged = audit_scalars(result())
    assert logged["audit/attnlrp/verdict"] == 1
    assert logged["audit/random/verdict"] == 0
    assert logged["audit/attnlrp/perturbation_gain"] == pytest.approx(0.4)
    empty = AuditResult(("random",), (), (reach_verdict("random", registered_tests(), {}),), (), {}, 1.0, 1.0)
    assert audit_scalars(empty) == {}
    assert not math.isfinite(UnitResult("seeds", "1").seconds)
