"""Which cues are named: one rule, on linear models and bags of words whose weights are set by hand."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from plain_texts import BagOfWords, bert, mixed

from lrptrain.batch import Sample
from lrptrain.cues import plan
from lrptrain.cues.measure import Measure
from lrptrain.cues.search import Node, Search
from tests.cues.columns import Columns

COUNT = 512
EVERYONE = np.arange(COUNT)


@dataclass(frozen=True)
class Rest(Columns):
    """All that is no evidence."""

    is_rest: ClassVar[bool] = True
    where: ClassVar[str] = "outside"


@dataclass(frozen=True)
class Anywhere(Columns):
    """Columns that are known by where they lie."""

    is_position: ClassVar[bool] = True
    where: ClassVar[str] = "outside"


@dataclass(frozen=True)
class Kin(Columns):
    """Columns of a family."""

    is_family: ClassVar[bool] = True


def searched(weights, *roots, share=1.0, **options):
    """Search a logistic model of six columns; so large a share of samples has the first one."""
    rows = torch.randn(COUNT, 1, 1, 6, generator=torch.Generator().manual_seed(0))
    rows[int(share * COUNT) :, 0, 0, 0] = 0
    weights = torch.tensor([float(each) for each in weights])

    def probabilities(batch):
        p = torch.sigmoid((batch["image"][:, 0, 0] * weights).sum(1))
        return torch.stack([1 - p, p], 1).numpy()

    before = probabilities({"image": rows})
    samples = [Sample(i, -1, {"image": row}) for i, row in enumerate(rows)]
    nodes = [each if isinstance(each, Node) else Node(each, EVERYONE) for each in roots]
    return Search(Measure(samples, before.argmax(1), probabilities, before=before), **options).run(nodes)


def named(*given, **options):
    return [each.cue.name for each in searched(*given, **options) if each.named]


ONE, BOTH, OTHER = Columns("one", (0,)), Columns("both", (0, 1)), Columns("other", (1,))
LOOK = Columns("look", (0, 1, 2), is_everywhere=True)


@pytest.mark.parametrize("turned", [False, True])
def test_of_what_does_as_much_it_is_what_changes_the_least(turned):
    for larger in (BOTH, LOOK):
        assert named([4, 0, 0, 0, 0, 0], *[ONE, larger][:: -1 if turned else 1]) == ["one"]


@pytest.mark.parametrize("turned", [1, -1])
def test_of_what_does_as_much_it_is_words_before_their_family_though_they_change_more(turned):
    assert named([3, 0, 0, 0, 0, 0], *[BOTH, Kin("family", (0,))][::turned]) == ["both"]
    assert named([3, 0, 0, 3, 0, 0], *[BOTH, Kin("family", (0, 3))][::turned]) == ["family"]


def test_what_surely_does_more_is_named_alone_and_its_parts_do_nothing_beside_it():
    assert named([4, 4, 4, 0, 0, 0], ONE, OTHER, LOOK) == ["look"]
    assert named([3, 3, 0, 0, 0, 0], ONE, OTHER, BOTH) == ["both"]


def test_a_further_cue_is_named_if_it_still_does_something():
    found = searched([4, 2.5, 0, 0, 0, 0], OTHER, ONE)
    assert [(each.cue.name, each.named, each.also_relies_on) for each in found] == [
        ("one", True, ("other",)),
        ("other", True, ("one",)),
    ]


def test_no_more_than_so_many_are_named():
    found = searched([6.0] * 6, *(Columns(str(i), (i,)) for i in range(6)), min_effect=0.01)
    assert sum(each.verdict == "relies" for each in found) == 6
    assert sum(each.named for each in found) == 4


def test_a_shortcut_comes_first_and_is_never_left_out_for_what_nobody_has_spoken_of():
    fault = OTHER.declared("shortcut")
    assert named([4, 3, 0, 0, 0, 0], ONE, fault) == ["other", "one"]
    assert named([4, 0, 0, 0, 0, 0], ONE, BOTH.declared("shortcut")) == ["both"]


def test_a_thing_comes_before_a_place_which_is_named_for_what_else_it_does():
    place = Anywhere("place", (0, 1))
    assert named([3, 0, 0, 0, 0, 0], place, ONE) == ["one"]
    assert named([3, 3, 0, 0, 0, 0], place, ONE) == ["one", "place"]


def test_what_few_samples_have_decides_only_these():
    """It turns every answer of a quarter of the samples; the other one turns many of all."""
    assert named([40, 9, 0, 0, 0, 0], ONE, OTHER, share=0.25)[0] == "other"


def test_the_whole_is_never_named_and_all_outside_only_where_nothing_else_is():
    whole = Node(Columns("all", tuple(range(6))), EVERYONE, (Node(ONE, EVERYONE), Node(OTHER, EVERYONE)), is_whole=True)
    (first, second, rest) = searched([4, 3, 0, 0, 0, 4], whole)
    assert [each.cue.name for each in (first, second) if each.named] == ["one", "other"]
    assert (rest.cue.name, rest.named, rest.verdict) == ("all", False, "relies")
    outside = Rest("outside", (0, 1, 2), "shortcut")
    assert named([3, 3, 0, 0, 0, 0], Node(outside, EVERYONE, (Node(ONE.declared("shortcut"), EVERYONE),))) == ["one"]
    assert named([3, 3, 0, 0, 0, 0], Node(outside, EVERYONE)) == ["outside"]


def test_a_share_is_of_the_whole_and_no_more_than_it():
    halves = Columns("half", (0, 1, 2))
    whole = Node(
        Columns("all", tuple(range(6))), EVERYONE, (Node(halves, EVERYONE, (Node(ONE, EVERYONE),)),), is_whole=True
    )
    (found, *_) = searched([4, 0, 0, 4, 0, 0], whole)
    assert (found.cue.name, found.within) == ("one", "all")
    assert 0.3 < found.share < 0.7
    (found, *_) = searched([4, 0, 0, 0, 0, 0], whole)
    assert 0.95 < found.share <= 1.0
    # A part of what is no part of the whole, as one mark of several, has a share of the whole, too.
    marks = Node(Columns("marks", (0, 1)), EVERYONE, (Node(ONE, EVERYONE),))
    (found, *_) = searched([4, 0, 0, 4, 0, 0], Node(Columns("all", tuple(range(6))), EVERYONE, is_whole=True), marks)
    assert (found.cue.name, found.within) == ("one", "all")


@pytest.mark.parametrize(("weights", "role"), [([4, 0, 0, 0, 0, 2], "shortcut"), ([3, 0, 0, 0, 0, 5], "unreviewed")])
def test_all_outside_of_rationales_is_a_shortcut_if_it_does_more_than_the_whole_without_it(weights, role):
    place = Anywhere("place", (0, 1), "shortcut")
    outside = Node(Rest("outside", (0, 1, 2), "shortcut"), EVERYONE, (Node(place, EVERYONE),))
    whole = Node(Columns("all", tuple(range(6))), EVERYONE, (outside,), is_whole=True)
    found = {each.cue.name: each for each in searched(weights, whole)}
    assert {found[name].cue.role for name in ("outside", "place")} == {role}
    said = {each.cue.name: each for each in searched(weights, whole, declared=[place])}
    assert said["place"].is_fault, "what people have said stands"


def of_texts(texts, weights, bias=0):
    writer = bert()
    samples, probabilities = writer.samples(texts), BagOfWords(writer, weights, bias).probabilities
    batches = [{name: x[None] for name, x in each.tensors.items()} for each in samples]
    before = np.concatenate([probabilities(each) for each in batches])
    measure = Measure(samples, before.argmax(1), probabilities, before=before)
    roots = plan.of_texts(samples, before.argmax(1), writer.language)
    return [each.cue.name for each in Search(measure).run(roots) if each.named]


def test_words_are_named_and_not_the_place_where_they_stand():
    texts = [" ".join([("yea", "nay")[i % 2], *text]) for i, text in enumerate(mixed(128))]
    (name,) = of_texts(texts, {"yea": 3, "nay": -3})
    assert name in ("the words 'yea', 'nay'", "the words 'nay', 'yea'")
