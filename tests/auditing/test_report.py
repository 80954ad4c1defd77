import base64
import io
import json
import math
import re

import numpy as np
import pytest
from PIL import Image

from lrptrain.auditing import AuditResult, UnitResult, reach_verdict, registered_tests
from lrptrain.auditing.report import audit_scalars, markdown, verdict_table, write_audit_report

SPREAD = np.linspace(-0.05, 0.05, 20)
GAINS = {"attnlrp": 0.4, "raw_attention": 0.1, "random": 0.0}


def result():
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
        units.append(UnitResult("localisation", method, {"epg": [gain + 0.5], "chance": [0.25]}, 1.0))
    units += [
        UnitResult("agreement", "", {"methods": list(GAINS), "matrix": np.eye(3).tolist()}),
        UnitResult("leave_one_out", "attnlrp", problem="not run: the budget of 9 s is used up"),
        UnitResult("leave_one_out", "random", problem="not run: the budget of 9 s is used up"),
    ]
    about = {"samples": 20, "classes": 2, "accuracy": 0.9, "predicted": [0, 1], "labels": [0, 1]}
    return AuditResult(tuple(GAINS), tuple(units), tuple(verdicts), ("Of few samples.",), about, 9.0, 8.0)


def test_the_table_has_the_best_first_and_no_empty_column():
    lines = verdict_table(result()).splitlines()
    heads = [head.strip() for head in lines[0].split("|")[1:-1]]
    assert heads == ["method", "faithful", "gain over random ↑", "tau, leave-one-out ↑", "lost weights ↓", "EPG ↑"]
    assert [line.split()[1] for line in lines[2:]] == ["attnlrp", "raw_attention", "random"]
    assert "0.400 [0.39, 0.41]" in lines[2]
    assert len({len(line) for line in lines}) == 1


def test_everything_is_said_once():
    text = markdown(result())
    assert "20 samples, 90% of them classified correctly" in text
    assert "- random: faithful on this model: no (its order does not beat random orders" in text
    assert "- Of few samples." in text
    assert "Chance level of EPG: 0.250." in text
    assert "- leave_one_out of attnlrp, leave_one_out of random: not run: the budget of 9 s is used up" in text


def test_files_and_pictures(tmp_path):
    write_audit_report(result(), tmp_path)
    saved = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert saved["verdicts"][0]["numbers"]["perturbation"]["samples"] == 20
    assert {"test": "leave_one_out", "of": "random"}.items() <= saved["units"][-1].items()
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "random: faithful on this model: no" in page
    pictures = dict(re.findall(r'<img alt="(\w+)" src="data:image/png;base64,([^"]+)">', page))
    assert pictures.keys() == {"gains", "agreement"}
    for pixels in pictures.values():
        assert np.asarray(Image.open(io.BytesIO(base64.b64decode(pixels))).convert("L")).std() > 5


def test_scalars_of_what_was_judged():
    logged = audit_scalars(result())
    assert logged["audit/attnlrp/verdict"] == 1
    assert logged["audit/random/verdict"] == 0
    assert logged["audit/attnlrp/perturbation_gain"] == pytest.approx(0.4)
    empty = AuditResult(("random",), (), (reach_verdict("random", registered_tests(), {}),), (), {}, 1.0, 1.0)
    assert audit_scalars(empty) == {}
    assert not math.isfinite(UnitResult("leave_one_out", "random").seconds)


def test_an_audit_is_a_table_and_a_short_line():
    audit = result()
    page = audit._repr_html_()
    assert page.count("<tr>") == 1 + 3  # the head, and a row for each method
    assert "0.400 [0.39, 0.41]" in page
    assert "|" not in re.sub(r"<[^>]*>", "", page)
    assert repr(audit) == "AuditResult(20 samples, faithful: attnlrp: yes, raw_attention: yes, random: no)"
