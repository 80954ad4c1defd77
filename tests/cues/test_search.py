"""Trees of cues: verdicts by an interval, levels handed down, the smallest part that does it is named."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.cues.measure import FIRST_LOOK, Effect, Measure, MeasureError
from lrptrain.cues.search import ENOUGH, Node, Search
from lrptrain.cues.visual.colour import Colour
from tests.cues.columns import Columns

COUNT = 64


@dataclass(frozen=True)
class Outside(Columns):
    """Some columns outside of the annotation."""

    where: ClassVar[str] = "outside"


def measure(weights, seed=0, count=COUNT):
    """A logistic model of six columns, each of which says the answer as far as its weight goes."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 1, 1, 6, generator=generator)
    weights = torch.tensor(weights)

    def probabilities(batch):
        p = torch.sigmoid((batch["image"][:, 0, 0] * weights).sum(1))
        return torch.stack([1 - p, p], 1).numpy()

    samples = [Sample(i, -1, {"image": row}) for i, row in enumerate(rows)]
    before = probabilities({"image": rows})
    return Measure(samples, before.argmax(1), probabilities, before=before)


EVERYONE = np.arange(COUNT)


def run(weights, *roots, **options):
    return {each.cue.name: each for each in Search(measure(weights), **options).run(roots)}


def test_verdicts_are_by_the_interval_and_the_least_effect():
    cues = [Node(Columns(name, (i,)), EVERYONE) for i, name in enumerate(("much", "little", "nothing"))]
    found = run([4.0, 1.0, 0.0, 0.0, 0.0, 0.0], *cues)
    assert [found[name].verdict for name in ("much", "little", "nothing")] == [
        "relies",
        "inconclusive",
        "does not rely",
    ]
    assert found["much"].effect.low > 0.05
    assert found["nothing"].effect.high < 0.05
    assert found["little"].effect.low <= 0.05 <= found["little"].effect.high
    assert run([4.0, 1.0, 0, 0, 0, 0], *cues, min_effect=0.9)["much"].verdict == "does not rely"
    assert next(iter(found)) == "much", "what is named comes first"


@pytest.mark.parametrize("role", ["shortcut", "unreviewed"])
@pytest.mark.parametrize(("count", "verdict"), [(0, "does not rely"), (4, "inconclusive"), (9, "inconclusive")])
def test_of_what_decides_few_samples_it_is_not_said_that_a_model_does_not_rely_on_it(count, verdict, role):
    """The first twelve samples seldom have it, and a mean over 128 hides it."""
    values = np.zeros(128)
    values[np.random.default_rng(1).permutation(128)[:count]] = 1.0
    whole = Columns("all", (0,), role)
    object.__setattr__(whole, "is_rest", role == "shortcut")
    (found,) = Search(Given(all=values)).run([Node(whole, np.arange(128))])
    assert found.effect.samples == (128 if role == "shortcut" else 12)
    assert found.verdict == (verdict if role == "shortcut" else "does not rely")


@pytest.mark.parametrize(("others", "verdict"), [(0, "inconclusive"), (2, "does not rely")])
def test_samples_that_flip_either_way_are_chance(others, verdict):
    values = np.r_[np.ones(4), -np.ones(others), np.zeros(188 - others)]
    (found,) = Search(Given(all=values)).run([Node(Columns("all", (0,), "shortcut"), np.arange(192))])
    assert found.effect.high < 0.05
    assert found.verdict == verdict


def test_of_what_lies_outside_no_part_is_a_shortcut_unless_the_whole_is_relied_on():
    """What was named before is a root; an image statistic may break what a swap of all that lies outside leaves."""
    whole, part = Outside("all", (0, 1), "shortcut"), Outside("colours", (0,), "shortcut")
    object.__setattr__(whole, "is_rest", True)
    for effect, verdict in ((0.0, "does not rely"), (0.7, "relies")):
        found = Search(Given(all=[effect], colours=[0.8])).run([Node(cue, np.arange(192)) for cue in (whole, part)])
        assert {each.cue.name: each.verdict for each in found}["all"] == verdict
        assert not any(each.cue is part for each in found), "it does more than the whole"
    # What is declared to be evidence is no shortcut.
    found = Search(Given(all=[0.0], colours=[0.8])).run(
        [Node(cue, np.arange(192)) for cue in (whole, part.declared("annotation"))]
    )
    assert [each.verdict for each in found] == ["relies", "does not rely"]


@pytest.mark.parametrize(("effect", "named"), [(0.8, "all"), (0.42, "the colours outside the annotation")])
def test_a_part_outside_that_does_more_than_the_whole_is_no_part_of_it(effect, named):
    colours = Colour.of("outside", "shortcut")
    measured = Given(all=[0.4], **{colours.name.replace(" ", "_"): [effect]})
    whole = Outside("all", (0,), "shortcut")
    object.__setattr__(whole, "is_rest", True)
    found = Search(measured).run([Node(whole, np.arange(192), (Node(colours, np.arange(192)),))])
    assert [each.cue.name for each in found if each.named] == [named]


def test_no_more_samples_are_spent_on_what_has_no_effect():
    nothing = measure([4.0, 0, 0, 0, 0, 0])
    Search(nothing).run([Node(Columns("nothing", (3,)), EVERYONE)])
    assert nothing.passes == FIRST_LOOK, "without the control"
    assert nothing.passes < 0.2 * 2 * COUNT
    something = measure([4.0, 0, 0, 0, 0, 0])
    Search(something).run([Node(Columns("much", (0,)), EVERYONE)])
    assert something.passes == 2 * COUNT


def test_what_cannot_become_sure_ends_its_test_and_a_fault_goes_on():
    """An effect of 0.06 that varies by 0.3 is never sure of 192 samples, and a half of them shows that."""
    values = np.resize([0.36, -0.24], 192)
    passes = {}
    for role in ("unreviewed", "shortcut"):
        asked = Given(one=values)
        (found,) = Search(asked).run([Node(Columns("one", (0,), role), np.arange(192))])
        assert (found.verdict, found.named) == ("inconclusive", False)
        passes[role] = asked.rows
    assert passes["unreviewed"] <= 96
    assert passes["shortcut"] == 192


class Drawn(Measure):
    """Effects of a mean and a spread; drops say nothing."""

    def __init__(self, seed, mean, spread):
        samples = [Sample(i, -1, {"image": torch.zeros(1, 1, 6)}) for i in range(128)]
        super().__init__(samples, np.arange(128) % 2, lambda batch: np.zeros((len(batch["image"]), 2)))
        self.values, self.rows = np.random.default_rng(seed).normal(mean, spread, 128), 0

    def effects(self, cue, rows, among):
        self.rows += len(rows)
        return self.values[rows]

    def drops(self, cue, rows, among):
        return np.ones(len(rows))


@pytest.mark.parametrize("mean", [0.05, 0.12, 0.15, 0.22])
def test_ending_early_costs_little_of_what_would_be_found(mean, monkeypatch):
    """Of 100 effects each, as one of twenty roots; what is not found would have been barely so."""
    found, rows = [], []
    for gives_up in (False, True):
        if not gives_up:
            monkeypatch.setattr(Search, "_may_rely", lambda *_: True)
        drawn = [Drawn(seed, mean, 0.3) for seed in range(100)]
        judged = [Search(each)._judge(Node(Columns("one", (0,)), np.arange(128)), 0.05 / 20, None) for each in drawn]
        found.append(sum(each.verdict == "relies" for each in judged))
        rows.append(sum(each.rows for each in drawn))
        monkeypatch.undo()
    assert found[0] - 10 <= found[1] <= found[0]
    assert rows[1] <= (0.45 if mean == 0.05 else 1.0) * rows[0]


def test_the_passes_of_a_search_are_bounded():
    """Eight cues that do nothing: a pass for each sample of the first look. One that does: two for 64 samples."""
    one = measure([40.0, 0, 0, 0, 0, 0])
    idle = [Columns(f"nothing {i}", (1 + i % 5,), parts=(Columns(f"a part {i}", ()),)) for i in range(8)]
    found = Search(one).run([Node(cue, EVERYONE) for cue in (Columns("much", (0,)), *idle)])
    assert [each.cue.name for each in found if each.named] == ["much"]
    assert one.passes <= 8 * FIRST_LOOK + 2 * ENOUGH


def tree(role="unreviewed"):
    ones = [Columns(f"column {i}", (i,), role) for i in range(3)]
    left = Columns("left", (0, 1, 2), role, tuple(ones))
    return Columns("all", tuple(range(6)), role, (left, Columns("right", (3, 4, 5), role)))


def test_parts_of_what_does_not_rely_are_not_tested():
    assert set(run([1e-3] * 6, Node(tree(), EVERYONE))) == {"all"}


def test_levels_are_handed_down_and_shared_by_weight(monkeypatch):
    levels = {}
    judge = Search._judge

    def noted(self, node, level, parent):
        levels[node.cue.name] = level
        return judge(self, node, level, parent)

    monkeypatch.setattr(Search, "_judge", noted)
    more = Node(Columns("more", (0,)), EVERYONE)
    roots = Node(tree(), EVERYONE, (more,), weight=3.0), Node(Columns("other", (5,)), EVERYONE)
    run([4.0] * 6, *roots, confidence=0.9, min_effect=0.01)
    assert levels["all"] == pytest.approx(0.075)
    assert levels["other"] == pytest.approx(0.025)
    assert [levels[name] for name in ("left", "right", "more")] == pytest.approx([0.025] * 3)
    assert levels["column 0"] == pytest.approx(0.025 / 3)


@pytest.mark.parametrize(("answers", "levels"), [(2, [0.05]), (3, [0.025, 0.025 / 3])])
def test_of_three_answers_and_more_each_has_a_part_of_the_level(answers, levels, monkeypatch):
    """Half of the level is for all together, and of it half for the only look; each answer has its part of the rest."""
    asked = []

    def noted(values, level):
        asked.append(level)
        return Effect(0.0, -1.0, 1.0, 9)

    monkeypatch.setattr("lrptrain.cues.search.effect_of", noted)
    few = measure([4.0, 0, 0, 0, 0, 0], count=12)
    few.answers = np.arange(12) % answers
    monkeypatch.setattr(few, "effects", lambda cue, rows, among: np.zeros(len(rows)))
    monkeypatch.setattr(few, "drops", lambda cue, rows, among: np.ones(len(rows)))
    Search(few).run([Node(Columns("one", (0,)), np.arange(12))])
    doubts = {round(level, 9) for level in asked} - {0.025}
    assert sorted(doubts, reverse=True) == pytest.approx(
        [each for each in (levels[0] / 2, *levels[1:]) if each != 0.025]
    )
    assert answers == 2 or sum(level == pytest.approx(levels[-1]) for level in asked) == answers


class Least(Measure):
    """Every effect is the least one that matters, with noise."""

    def __init__(self, seed):
        samples = [Sample(i, -1, {"image": torch.zeros(1, 1, 6)}) for i in range(COUNT)]
        super().__init__(samples, EVERYONE % 2, lambda batch: np.zeros((len(batch["image"]), 2)))
        self.noise = np.random.default_rng(seed)

    def effects(self, cue, rows, among):
        return self.noise.normal(0.05, 0.2, len(rows))

    def drops(self, cue, rows, among):
        return np.ones(len(rows))


def test_false_reliance_is_as_rare_as_the_level_says():
    """Columns whose effect is the least one that matters: any 'relies' is false. Of 300 searches of six cues each."""
    wrong = 0
    for seed in range(300):
        found = Search(Least(seed), confidence=0.8).run([Node(Columns(str(i), (i,)), EVERYONE) for i in range(6)])
        wrong += any(each.verdict == "relies" for each in found)
    assert wrong <= 300 * 0.2 + 3.1 * np.sqrt(300 * 0.2 * 0.8)
    assert wrong > 0, "or the test says nothing"


def test_values_are_those_of_each_sample_and_ready_for_json():
    found = run([4.0, 0, 0, 0, 0, 0], Node(Columns("much", (0,)), EVERYONE[:40]))["much"]
    assert np.isnan(found.values[40:]).all()
    assert found.effect.mean == pytest.approx(found.values[:40].mean())
    plain = found.to_dict()
    assert plain["cue"]["name"] == "much"
    assert (plain["verdict"], plain["samples"], plain["named"]) == ("relies", 40, True)


def test_a_sure_effect_ends_its_test_early_and_what_is_named_is_measured_further():
    sure = measure([40.0, 0, 0, 0, 0, 0], count=256)
    everyone = np.arange(256)
    found = {each.cue.name: each for each in Search(sure).run([Node(tree(), everyone)])}
    assert [name for name, each in found.items() if each.named] == ["column 0"]
    assert found["column 0"].effect.samples == ENOUGH
    assert {each.effect.samples for each in found.values() if each.verdict == "relies"} == {ENOUGH}


def of_three(seed=0, count=192):
    """A model of three answers: column 0 tells the first two apart, column 5 alone makes it the third."""
    rows = torch.randn(count, 1, 1, 6, generator=torch.Generator().manual_seed(seed))

    def probabilities(batch):
        x = batch["image"][:, 0, 0]
        return (20 * torch.stack([x[:, 0], -x[:, 0], 3 * (x[:, 5] - 1)], 1)).softmax(1).numpy()

    samples = [Sample(i, -1, {"image": row}) for i, row in enumerate(rows)]
    before = probabilities({"image": rows})
    return Measure(samples, before.argmax(1), probabilities, before=before)


def test_a_cue_may_tell_one_answer_alone():
    three = of_three()
    share = float((three.answers == 2).mean())
    alone = Search(three, min_effect=0.3)
    values = np.where(three.answers == 2, 0.9, 0.0) + np.random.default_rng(0).normal(0, 0.01, 192)
    assert alone._of_one_answer(values, [0, 1, 2], 0.01) is None, f"0.9 of {share:.0%} is less than 0.3"
    small = Search(three, min_effect=0.05)
    found = small._of_one_answer(values, [0, 1, 2], 0.01)
    assert found is not None
    answer, effect = found
    assert answer == 2
    assert effect.mean == pytest.approx(0.9, abs=0.01)
    assert small._of_one_answer(np.zeros(192), [0, 1, 2], 0.01) is None
    doubtful = np.zeros(192)
    doubtful[three.answers == 2] = np.tile([0.62, -0.16], 12)
    assert small._of_one_answer(doubtful, [0, 1, 2], 0.01) is None, "its mean alone lies above what matters"


def test_what_tells_one_answer_alone_is_judged_by_its_samples_and_so_are_its_parts():
    """Column 4 makes an answer the third, and turns the other two into one another at random."""
    rows = torch.randn(192, 1, 1, 6, generator=torch.Generator().manual_seed(0))

    def probabilities(batch):
        x = batch["image"][:, 0, 0]
        side = 3 * torch.sign(torch.sin(20 * x[:, 4]) * x[:, 3])
        return torch.stack([side, -side, 20 * (x[:, 4] - 0.5)], 1).softmax(1).numpy()

    answers = probabilities({"image": rows}).argmax(1)
    three = Measure([Sample(i, -1, {"image": row}) for i, row in enumerate(rows)], answers, probabilities)
    both = Columns("both", (4, 5), parts=(Columns("nothing", (5,)), Columns("it", (4,))))
    found = {each.cue.name: each for each in Search(three, min_effect=0.2).run([Node(both, np.arange(192))])}
    assert [name for name, each in found.items() if each.named] == ["it"]
    assert found["it"].share == pytest.approx(1)
    for each in (found["both"], found["it"]):
        assert (each.verdict, each.answer) == ("relies", 2)
        assert set(answers[~np.isnan(each.values)]) == {2}


def test_the_interval_of_what_does_not_rely_lies_below_the_least_effect():
    found = run([4.0, 0.05, 0.0, 0.0, 0.0, 0.0], *(Node(Columns(f"{i}", (i,)), EVERYONE) for i in range(6)))
    quiet = [each for each in found.values() if each.verdict == "does not rely"]
    assert len(quiet) > 3
    assert all(each.effect.high < 0.05 for each in quiet)


def test_what_is_named_is_known_well_and_costs_no_more_than_that():
    """It moves answers of half of the samples, so that its effect on each is 1 or 0."""
    rows = torch.randn(256, 1, 1, 6, generator=torch.Generator().manual_seed(0))

    def probabilities(batch):
        x = batch["image"][:, 0, 0]
        p = torch.sigmoid(20 * torch.where(x[:, 1] > 0, x[:, 0], x[:, 2]))
        return torch.stack([1 - p, p], 1).numpy()

    samples = [Sample(i, -1, {"image": row}) for i, row in enumerate(rows)]
    before = probabilities({"image": rows})
    half = Measure(samples, before.argmax(1), probabilities, before=before)
    (found,) = Search(half).run([Node(Columns("half of them", (0,)), np.arange(256))])
    assert found.named
    assert 0.1 < (found.effect.high - found.effect.low) / 2 < 0.16
    assert half.passes <= 256


class Given(Measure):
    """Effects that are given, by the name of the cue."""

    def __init__(self, answers=2, **values):
        samples = [Sample(i, -1, {"image": torch.zeros(1, 1, 6)}) for i in range(192)]
        super().__init__(samples, np.arange(192) % answers, lambda batch: np.zeros((len(batch["image"]), answers)))
        self.values = {name.replace("_", " "): np.resize(each, 192) for name, each in values.items()}
        self.rows = 0

    def effects(self, cue, rows, among):
        self.rows += len(rows)
        return self.values[cue.name][rows]

    def drops(self, cue, rows, among):
        return np.where(np.isnan(self.values[cue.name][rows]), np.nan, 1.0)


def test_a_part_of_what_tells_one_answer_is_judged_by_that_answer():
    part = Columns("part", (0,))
    effects = Given(3, whole=[0.8, 0.0, 0.9, -0.8, 0.0, 0.9], part=[0.9, 0.0, 0.0])
    found = Search(effects, min_effect=0.2).run([Node(Columns("whole", (0, 1), parts=(part,)), np.arange(192))])
    whole, part_of_it = found
    assert (whole.cue.name, whole.answer, whole.named) == ("whole", 2, True)
    assert (part_of_it.answer, part_of_it.verdict, part_of_it.within) == (2, "does not rely", "whole")


def test_what_further_samples_do_not_show_is_not_named():
    order = np.random.default_rng(192).permutation(192)  # in which samples are measured
    lucky = np.full(192, -0.1)
    lucky[order[:FIRST_LOOK]] = 0.9
    (found,) = Search(Given(one=lucky)).run([Node(Columns("one", (0,)), np.arange(192))])
    assert found.effect.samples == ENOUGH
    assert (found.verdict, found.named) == ("inconclusive", False)


def test_what_is_named_comes_in_the_order_of_what_is_sure_of_it():
    found = run([2.0, 4.0, 0, 0, 0, 0], *(Node(Columns(str(i), (i,)), EVERYONE) for i in range(2)))
    assert [name for name, each in found.items() if each.named] == ["1", "0"]


def test_what_cannot_be_exchanged_is_told_and_the_others_go_on():
    @dataclass(frozen=True)
    class Broken(Columns):
        def exchange(self, batch, sources):
            raise RuntimeError("no such column")

    told = []
    search = Search(measure([4.0, 0, 0, 0, 0, 0]), on_failure=lambda cue, error: told.append((cue.name, str(error))))
    found = search.run([Node(Broken("broken", (0,)), EVERYONE), Node(Columns("column", (0,)), EVERYONE)])
    assert [each.cue.name for each in found] == ["column"]
    assert told == [("broken", "RuntimeError: no such column")]
    with pytest.raises(MeasureError, match="no such column"):
        Search(measure([4.0, 0, 0, 0, 0, 0])).run([Node(Broken("broken", (0,)), EVERYONE)])


def test_a_cue_that_people_have_spoken_of_has_the_role_that_they_say():
    column = Columns("column", (0,))
    found = run(
        [4.0, 0, 0, 0, 0, 0], Node(tree(), EVERYONE), Node(column, EVERYONE), declared=[column.declared("shortcut")]
    )
    assert found["column"].is_fault
    assert {each.cue.role for name, each in found.items() if name != "column"} == {"unreviewed"}


def test_what_no_sample_has_is_no_cue_of_theirs_and_of_a_fault_a_doubt():
    nothing = Columns("nothing", ())
    assert run([4.0, 0, 0, 0, 0, 0], Node(nothing, EVERYONE)) == {}
    found = run([4.0, 0, 0, 0, 0, 0], Node(nothing.declared("shortcut"), EVERYONE))
    assert found["nothing"].verdict == "inconclusive"


def test_a_cue_in_two_branches_is_measured_once():
    part = Columns("part", (0,))
    once, twice = measure([4.0, 0, 0, 0, 0, 0]), measure([4.0, 0, 0, 0, 0, 0])
    Search(once).run([Node(Columns("left", (0, 1), parts=(part,)), EVERYONE)])
    branches = [Node(Columns(name, (0, i), parts=(part,)), EVERYONE) for i, name in enumerate(("left", "right"), 1)]
    Search(twice).run(branches)
    assert twice.passes < 2 * once.passes
