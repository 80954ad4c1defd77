"""What counts as a shortcut, and the numbers of a detector."""

import numpy as np

from experiments.benchmark.report import tables, tables_again
from experiments.benchmark.scoring import (
    AGAIN,
    DETECTORS,
    auroc_of,
    cut_of,
    judged,
    leads,
    positive,
    recall_at,
    shows,
    weak,
)
from experiments.benchmark.watch import ANNOTATED, BARE


def run(score=0.0, lost=60, correlation=0.9, kind="blur", task="digits", flags=(False, False, True), seed=0):
    """A run of 200 held-out samples whose number `error slice` and last effect are the score."""
    finding = {"kind": "focus", "scope": "all", "where": "there", "effect": score, "is_fault": score < 0.5}
    evaluations = [
        {
            "step": step,
            "accuracy": 0.9,
            "accuracy unbiased": 0.9 - lost / 200,
            "lost": lost if step > 10 else 0,
            "won": 0,
            ANNOTATED: {"confirmed": [finding] * flag, "on annotation": 0.5, "chance": 0.3},
            BARE: {"confirmed": [finding] * flag},
        }
        for step, flag in zip((10, 25, 60), flags, strict=True)
    ]
    names = ("error slice", "spectral clustering", "property correlation", "accuracy gap")
    rivals = dict.fromkeys(names, score) | {"property correlation": None if task == "texts" else score}
    row = {"task": task, "kind": kind, "correlation": correlation, "seed": seed, "number": 0, "seconds": 1.0}
    return row | {"evaluations": evaluations, "rivals": rivals}


NUMBER = next(each for each in DETECTORS if each.name == "error slice")


def test_an_accuracy_is_surely_lower_by_the_exact_test_of_mcnemar():
    assert not shows({"lost": 6, "won": 0})  # 2 ** -6 is 0.016
    assert shows({"lost": 7, "won": 0})  # 2 ** -7 is 0.008
    assert not shows({"lost": 7, "won": 1})  # 9 / 256
    assert not shows({"lost": 0, "won": 20})
    assert not shows({"lost": 0, "won": 0})


def test_what_was_planted_and_not_learned_is_neither_positive_nor_clean():
    learned, unlearned, clean = run(), run(lost=3), run(lost=0, correlation=None)
    assert [positive(each) for each in (learned, unlearned, clean)] == [True, False, False]
    assert judged([learned, unlearned, clean]) == [learned, clean]
    assert [weak(each) for each in (learned, run(lost=21), run(lost=19), unlearned)] == [False, False, True, False]


def test_a_detector_is_scored_by_pairs_of_a_positive_and_a_clean_run():
    high = [run(score) for score in (0.9, 0.5, 0.1)]
    low = [run(score, 0, None) for score in (0.0, 0.1, 0.2)]
    found = auroc_of(high + low, NUMBER.score)
    assert np.isclose(found.value, (3 + 3 + 1.5) / 9)
    assert found.low < found.value <= found.high == 1
    assert np.isnan(auroc_of(high, NUMBER.score).value)


def test_of_a_hundred_clean_runs_three_may_lie_above_the_cut():
    low = [run(score, 0, None) for score in np.linspace(0, 0.99, 100)]
    cut = cut_of(low, NUMBER.score)
    assert sum(NUMBER.score(each) > cut for each in low) == 3
    assert recall_at([run(0.97), run(0.965), run(cut), *low], NUMBER.score) == 2 / 3
    assert cut_of(low[:10], NUMBER.score) == max(NUMBER.score(each) for each in low[:10])


def test_the_lead_is_that_of_positive_runs_alone():
    early, never = run(flags=(True, True, True)), run(flags=(False,) * 3)
    assert leads([early, never, run(lost=0), run(lost=0, correlation=None)], BARE) == [(10, 25), (None, 25)]


def test_tables_count_runs_of_each_sort():
    runs = [run(0.9), run(0.3, task="texts", kind="name"), run(0.2, lost=1, kind="jpeg")]
    runs += [run(0.4, 0, None), run(0.0, 0, None, "no mark", flags=(False,) * 3), run(0.1, 0, None, "name", "texts")]
    made = tables(runs)
    assert (
        "6 runs of seeds 0 to 0: 3 planted, of which 2 are positive (0 weak) and 1 did not surely learn" in made["runs"]
    )
    flags = {line.split(" | ")[0]: line for line in made["flags"].splitlines()}
    assert "1.00 (0.34 to 1.00)" in flags["| monitor without annotations"]
    assert "0 of 1 (0.00 to 0.79) | 2 of 2 (0.34 to 1.00) | 2 of 3" in flags["| monitor without annotations"]
    assert "| 1 of 1 (0.21 to 1.00) | 0 of 1" in flags["| monitor without annotations"]  # the one that was not learned
    goals = made["goals"].splitlines()[4]
    assert "| monitor without annotations | 0.83 (" in goals  # 5 of 6 pairs
    assert "| 0.95 | no | 2 of 3 (0.21 to 0.94) | no |" in goals
    assert "0.50 (0.09 to 0.91)" in flags["| monitor without annotations, faults alone"]  # 0.9 is for you to judge
    assert "| property correlation | images alone |" in made["detectors"]
    assert "| blur | 1 | 1 | 30 to 30 | 1 | 0 |" in made["kinds"]
    assert "| jpeg | 1 | 0 |  | 0 |" in made["kinds"]
    assert made["false alarms"].count("| digits, blur, seed 0 |") == 2
    assert "2 with annotations and 2 without annotations" in made["false alarms"]


def test_the_second_test_has_a_number_of_every_run():
    near = run(flags=(False, False, False))
    for name, ratio in ((ANNOTATED, 0.7), (BARE, 0.4)):
        near["evaluations"][-1][name]["effect ratio"] = ratio
    numbers = {each.name: each.score(near) for each in AGAIN}
    assert numbers["monitor with annotations"] == 0.7
    assert numbers["monitor without annotations"] == 0.4
    assert not any(each.flag(near) for each in AGAIN if each.flag is not None)
    assert set(tables_again([near])) == {"runs", "goals", "detectors", "flags", "kinds", "false alarms"}
