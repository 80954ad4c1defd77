"""What counts as a shortcut, and the numbers of a detector."""

import numpy as np

from experiments.benchmark.report import tables
from experiments.benchmark.scoring import (
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


def run(score=0.0, lost=60, correlation=0.9, kind="dust", task="digits", flags=(False, False, True), seed=0):
    """A run of 200 held-out samples whose number `error slice` and last effect are the score."""
    named = {"cue": "there", "kind": "place", "effect": score, "low": score, "is_fault": score < 0.5}
    evaluations = [
        {
            "step": step,
            "accuracy": 0.9,
            "accuracy unbiased": 0.9 - lost / 200,
            "lost": lost if step > 10 else 0,
            "won": 0,
            ANNOTATED: {"named": [named] * flag, "on annotation": 0.5, "chance": 0.3},
            BARE: {"named": [named] * flag},
        }
        for step, flag in zip((10, 25, 60), flags, strict=True)
    ]
    of_images = dict.fromkeys(("property correlation", "cleanlab Datalab"), None if task == "texts" else score)
    rivals = dict.fromkeys(("error slice", "spectral clustering", "accuracy gap", "corelay SpRAy"), score) | of_images
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
    runs = [run(0.9), run(0.3, task="texts", kind="name"), run(0.2, lost=1, kind="depth")]
    runs += [run(0.4, 0, None), run(0.0, 0, None, "no mark", flags=(False,) * 3), run(0.1, 0, None, "date", "texts")]
    made = tables(runs)
    assert (
        "6 runs of seeds 0 to 0: 3 planted, of which 2 are positive (0 weak) and 1 did not surely learn" in made["runs"]
    )
    flags = {line.split(" | ")[0]: line for line in made["flags"].splitlines()}
    bare, annotated = flags["| monitor without annotations"], flags["| monitor with annotations"]
    assert "1.00 (0.34 to 1.00)" in bare
    assert "0 of 1 (0.00 to 0.79) | 2 of 2 (0.34 to 1.00) | 2 of 3" in bare
    assert "| 1 of 1 (0.21 to 1.00) | 0 of 1" in bare  # the one that was not learned
    assert "0.50 (0.09 to 0.91)" in annotated  # 0.9 is no fault
    detectors = made["detectors"].splitlines()
    assert "| monitor without annotations | 0.83 (" in detectors[3]  # 5 of 6 pairs
    assert "| property correlation | images alone |" in made["detectors"]
    assert "| dust | 1 | 1 | 30 to 30 | 0 | 1 |" in made["kinds"]
    assert "| depth | 1 | 0 |  | 0 |" in made["kinds"]
    assert made["false alarms"].count("| digits, dust, seed 0 |") == 2
    assert "2 with annotations and 2 without annotations" in made["false alarms"]
