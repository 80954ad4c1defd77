from dataclasses import replace

from examples import finding

from lrptrain.findings import announce
from lrptrain.findings.finding import OVERALL

CLASS = finding(scope="cat", effect=0.2)


def test_few_findings_are_all_told_in_full():
    overall = replace(CLASS, scope=OVERALL)
    assert announce([overall, CLASS]) == [str(overall), str(CLASS)]
    assert announce([]) == []


def test_many_classes_share_a_line_and_the_worst_come_first():
    findings = [replace(CLASS, scope=str(i), effect=(9 - i) / 10) for i in range(5)]
    lines = announce(findings, most=2)
    assert lines[:2] == [str(findings[4]), str(findings[3])]
    assert lines[2] == "! and likewise classes 2 (70 %), 1 (80 %), 0 (90 %)"
