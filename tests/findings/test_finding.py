from dataclasses import replace

from lrptrain.findings import Finding, announce
from lrptrain.findings.finding import OVERALL

CLASS = Finding(
    kind="focus_outside_annotation",
    scope="cat",
    target="label",
    effect=0.2,
    interval=(0.1, 0.3),
    confidence=0.95,
    chance=0.4,
    bound=0.4,
    p_value=0.01,
    samples=20,
    worst_samples=(3, 1),
    epoch=2,
    step=20,
    first_epoch=1,
)


def test_few_findings_are_all_told_in_full():
    overall = replace(CLASS, scope=OVERALL)
    assert announce([overall, CLASS]) == [str(overall), str(CLASS)]
    assert announce([]) == []


def test_many_classes_share_a_line_and_the_worst_come_first():
    findings = [replace(CLASS, scope=str(i), effect=(9 - i) / 10) for i in range(5)]
    lines = announce(findings, most=2)
    assert lines[:2] == [str(findings[4]), str(findings[3])]
    assert lines[2] == "! and likewise classes 2 (70 %), 1 (80 %), 0 (90 %)"
