"""What compares the arms of experiments/real_models: measures of single samples, pairs of seeds, planted words."""

import numpy as np
import pytest
from PIL import Image

from experiments.real_models import birds, cell, outlines
from experiments.real_models.measured import Measure
from experiments.real_models.report import arms_table
from experiments.short_tweets import with_word
from lrptrain.data.texts import Example
from lrptrain.findings import Finding

RIGHT = Measure("right", lambda run: run["right"])
MEASURES = {measure.name: measure for measure in (*birds.MEASURES, *cell.MEASURES)}


def answers(seed: int, share: float, count: int = 400) -> dict:
    """A run that tells so many of its samples, at random."""
    right = np.random.default_rng([seed, round(100 * share)]).random(count) < share
    return {"seed": seed, "right": right.astype(int), "group": np.arange(count) % birds.GROUPS}


def test_a_difference_is_of_the_same_seeds_and_samples():
    plain, other = [answers(seed, 0.4) for seed in range(3)], [answers(seed, 0.8) for seed in (2, 0)]
    expected = np.mean([other[0]["right"] - plain[2]["right"], other[1]["right"] - plain[0]["right"]])
    assert RIGHT.difference(other, plain).mean == pytest.approx(expected)
    assert RIGHT.difference(plain, plain)[:2] == (0.0, 0.0)
    with pytest.raises(ValueError, match="same seeds"):
        RIGHT.difference(other[:1], plain[:2])


def test_groups_of_birds_are_as_counted_by_hand():
    run = {"right": [1, 0, 1, 1, 0, 1, 1, 1, 0, 0], "group": [0, 0, 0, 1, 1, 2, 2, 2, 3, 3], "seed": 0}
    of_groups = [2 / 3, 1 / 2, 1, 0]
    assert MEASURES["mean of four groups"].of([run]).mean == pytest.approx(np.mean(of_groups))
    assert MEASURES["worst group"].of([run]).mean == 0
    assert MEASURES["on its own background"].of([run]).mean == pytest.approx(2 / 5)
    better = run | {"right": [1, 0, 1, 1, 0, 1, 1, 1, 1, 1]}
    assert MEASURES["worst group"].difference([better], [run]).mean == pytest.approx(1 / 2)


def test_the_interval_of_a_worst_group_is_that_of_its_own_samples():
    run = answers(0, 0.9, 400)
    run["right"] = np.where(run["group"] == 2, answers(1, 0.4, 400)["right"], run["right"])
    own = run["right"][run["group"] == 2]
    found = MEASURES["worst group"].of([run])
    assert found.mean == own.mean()
    assert found.half == pytest.approx(1.97 * own.std() / np.sqrt(len(own)), rel=0.15)


def test_what_a_watermark_turns_is_told_from_what_was_wrong_before():
    run = {"seed": 0, "breed": [0, 0, 2, 1, 1], "said without": [0, 1, 2, 1, 0], "said with": [1, 1, 2, 1, 1]}
    means = {measure.name: measure.of([run]).mean for measure in cell.MEASURES}
    expected = {
        "with the watermark as in training": 4 / 5,
        "without": 3 / 5,
        "marked breed without": 1 / 2,
        "turned by it": 1 / 3,
    }
    assert means == pytest.approx(expected)


def test_a_table_holds_every_arm_against_the_plain_one_of_its_own_model():
    runs = {
        f"{network}, {arm}, {seed}": answers(seed, share)
        | {"network": network, "arm": arm, "named": [], "seconds": 1.0}
        for network, shares in {"one": (0.2, 0.7), "other": (0.6, 0.6)}.items()
        for arm, share in zip(("plain", "swap"), shares, strict=True)
        for seed in range(2)
    }
    keys = {"model": lambda run: run["network"], "arm": lambda run: run["arm"]}
    lines = arms_table(runs, keys, [RIGHT], "right", "plain").splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[:2] for row in rows] == [["one", "plain"], ["one", "swap"], ["other", "plain"], ["other", "swap"]]
    assert [row[3] for row in rows][::2] == ["", ""]
    assert rows[1][3].startswith("+0.5")
    assert rows[1][3].endswith("*")
    assert rows[3][3].startswith("+0.00 ± 0.00")


def test_a_person_swaps_faults_and_open_marks():
    cues = {"mark": object(), "place": object()}

    def found(kind, role, verdict="relies"):
        return Finding(f"the {kind}", kind, role, verdict, 0.4, (0.3, 0.5), 64, cue=cues[kind])

    handed_on = [found("mark", "unreviewed"), found("place", "shortcut")]
    left_out = [
        found("mark", "unreviewed", "inconclusive"),
        found("place", "unreviewed"),
        found("place", "shortcut", "does not rely"),
    ]
    assert cell.judged([*left_out, *handed_on]) == [cues["mark"], cues["place"]]


def test_a_planted_word_leaves_every_mark_on_its_words():
    text = "so good a film that the bad end is forgotten"
    marked = ("good", "bad end")
    spans = tuple((text.index(words), text.index(words) + len(words)) for words in marked)
    found = [with_word(Example(text, 1, spans), "cubic", np.random.default_rng(seed)) for seed in range(60)]
    assert {tuple(each.text[start:end] for start, end in each.spans or ()) for each in found} == {marked}
    places = {each.text.split().index("cubic") for each in found}
    assert places == {0, 1, 2, 3, 4, 5, 6, 8, 9}  # not between the two words of one mark, nor at the end
    assert with_word(Example("one two", 0, None), "cubic", np.random.default_rng(0)).spans is None


class Surest:
    """Outlines two things in a picture of 40 x 20 pixels; it is surer of the second one."""

    def set_image(self, picture: np.ndarray) -> None:
        assert picture.shape == (20, 40, 3)

    def predict(self, box: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
        assert box == pytest.approx([6, 3, 34, 17])
        masks = np.zeros((2, 20, 40), bool)
        masks[0, :5, :5] = masks[1, 10:15, 8:28] = True
        return masks, np.array([0.5, 0.9]), None


def test_an_outline_is_the_box_around_what_is_surest(tmp_path):
    file = tmp_path / "photo.png"
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(file)
    assert outlines._box(Surest(), file).tolist() == pytest.approx([0.2, 0.5, 0.7, 0.75])
