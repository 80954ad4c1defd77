"""Swaps of what findings name."""

import json
from dataclasses import replace

import pytest
import torch

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.parts import InputPart, MarkPicture
from lrptrain.findings import OVERALL, Evidence, Finding, Scope
from lrptrain.guidance.named_parts import FollowedParts, NamedParts, names_of, parts_of, swap_of
from lrptrain.guidance.objective import Objective
from lrptrain.guidance.swaps import SWAPS
from lrptrain.intervention.parts import Confirmed

CORNER = InputPart("patches", "the corner", (2, 2), (0,))
BOTTOM = InputPart("patches", "the bottom", (2, 2), (2, 3))
WORDS = InputPart("words", "the word", words=((7,), (8, 9)))
EACH_OTHER = torch.tensor([1, 0])
COLOUR = InputPart("statistics", "colour")
DOT = InputPart("mark", "a dot", mark=MarkPicture((0.5, -1.0), (0.25,), 2, 1, 2, (-1, -1, 5, 5), (32, 32)))
MOVED = Evidence(0.5, (0.4, 0.6), 0.0, 0.001, 32)
CONFIRMED = Finding(
    "focus_at_position", OVERALL, "predicted", None, 0.95, 0, 0, 0, state="confirmed", intervention=MOVED, part=CORNER
)
TO_JUDGE = replace(CONFIRMED, kind="reliance_on_statistics", part=COLOUR)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=6):
    return torch.rand(count, 3, 8, 8, generator=generator())


def swapped(parts, explained, batch, donors=None, seed=0):
    named = NamedParts(parts)
    columns = named.annotated(batch)
    annotation = columns["mask"] if "mask" in columns else columns["rationale"]
    return swap_of(named)(explained, annotation, generator=generator(seed), without_evidence=True, donors=donors)[:2]


def texts(*rows):
    """Batches of texts with [CLS] 1 and [SEP] 2 at their ends, padded with 0."""
    width = max(map(len, rows)) + 2
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, words in enumerate(rows):
        ids[row, : len(words) + 2] = torch.tensor([1, *words, 2])
        mask[row, : len(words) + 2] = 1
    return {"input_ids": ids, "attention_mask": mask}


# -- What is the evidence ---------------------------------------------------------------------------------------------


def test_everything_but_what_is_named_is_evidence():
    mask = NamedParts([CORNER, COLOUR]).annotated({"image": images()})["mask"]
    assert mask.shape == (6, 8, 8)
    assert (mask[:, :4, :4] == 0).all()
    assert mask.sum() == 6 * 48
    rationale = NamedParts([WORDS]).annotated(texts([5, 7, 6], [8, 9], [8]))["rationale"]
    ignored = IGNORED
    expected = [[ignored, 1, 0, 1, ignored], [ignored, 0, 0, ignored, ignored], [ignored, 1, ignored, ignored, ignored]]
    assert rationale.tolist() == expected


def test_without_parts_a_batch_has_no_annotation():
    batch = {"image": images()}
    assert NamedParts().annotated(batch).keys() == batch.keys()


# -- The swap ---------------------------------------------------------------------------------------------------------


def test_a_place_is_that_of_another_image_and_all_else_stays():
    batch = images()
    changed, is_swapped = swapped([CORNER], batch, {"image": batch})
    assert is_swapped.all()
    corner = torch.zeros(8, 8, dtype=torch.bool)
    corner[:4, :4] = True
    assert torch.equal(changed[:, :, ~corner], batch[:, :, ~corner])
    donors = torch.cdist(changed[:, :, corner].flatten(1), batch[:, :, corner].flatten(1)).argmin(1)
    assert torch.equal(changed[:, :, corner], batch[donors][:, :, corner])
    assert sorted(donors.tolist()) == list(range(6))


def test_every_sample_is_as_often_its_own_donor_as_any_other():
    """A donor that is never the sample itself is of another class too often: that would tell the class."""
    batch = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 2, 2)
    corner = InputPart("patches", "the corner", (1, 1), (0,))
    counts = torch.zeros(4, 4)
    for seed in range(1200):
        donors = swapped([corner], batch, {"image": batch}, seed=seed)[0][:, 0, 0, 0].long()
        counts[torch.arange(4), donors] += 1
    # 300 of 1200 each, with a standard deviation of 15.
    assert (counts - 300).abs().max() < 75
    ids = texts([5], [6], [7], [8])
    words = InputPart("words", "words", words=((5,), (6,), (7,), (8,)))
    own = sum(
        (swapped([words], ids["input_ids"], ids, seed=seed)[0] == ids["input_ids"])[:, 1].sum() for seed in range(300)
    )
    assert abs(int(own) - 300) < 90


def test_what_lies_elsewhere_in_the_donor_comes_along_and_what_the_image_had_goes():
    """A mark that lies elsewhere in every image: the image has that of its donor then, and its own no more."""
    batch = images(2)
    annotation = torch.ones(2, 8, 8, dtype=torch.uint8)
    annotation[0, :2, :2] = 0
    annotation[1, 6:, 6:] = 0
    changed, is_swapped, _ = NamedParts([CORNER]).swap(batch, annotation, None, generator(), True, torch.tensor([1, 0]))
    assert is_swapped.all()
    either = (annotation == 0).any(0)
    for row in (0, 1):
        assert torch.equal(changed[row][:, either], batch[1 - row][:, either])
        assert torch.equal(changed[row][:, ~either], batch[row][:, ~either])


def test_a_sample_that_cannot_be_used_neither_takes_nor_gives():
    batch = images()
    batch[2] = float("nan")
    annotation = NamedParts([CORNER]).annotated({"image": batch})["mask"]
    annotation[2] = IGNORED
    for seed in range(20):
        changed, is_swapped, _ = NamedParts([CORNER]).swap(batch, annotation, None, generator(seed), True, None)
        assert is_swapped.tolist() == [True, True, False, True, True, True]
        assert changed[is_swapped].isfinite().all()


def test_one_sample_alone_is_left_as_it_is():
    batch = images(1)
    changed, is_swapped = swapped([CORNER], batch, {"image": batch})
    assert torch.equal(changed, batch)
    assert not is_swapped.any()
    text = texts([5, 7])
    changed, is_swapped = swapped([WORDS], text["input_ids"], text)
    assert torch.equal(changed, text["input_ids"])
    assert not is_swapped.any()


def test_a_property_is_swapped_everywhere_and_a_place_comes_as_it_was():
    batch = images()
    donors = torch.arange(6).roll(1)
    changed, _ = swapped([COLOUR, CORNER], batch, {"image": batch}, donors)
    recoloured, *_ = SWAPS["statistics"](batch, torch.ones(6, 8, 8), generator=generator(), donors=donors)
    expected = recoloured.clone()
    expected[:, :, :4, :4] = batch[donors][:, :, :4, :4]
    assert torch.equal(changed, expected)
    changed, is_swapped = swapped([COLOUR], batch, {"image": batch}, donors)
    assert torch.equal(changed, recoloured)
    assert is_swapped.all()


def test_words_take_each_others_places():
    batch = texts([5, 7, 6], [3, 8, 9, 4])
    changed, is_swapped = swapped([WORDS], batch["input_ids"], batch, EACH_OTHER)
    assert is_swapped.all()
    # A word of one token for two, and two for one, of which the first is taken: lengths stay.
    assert changed.tolist() == [[1, 5, 8, 6, 2, 0], [1, 3, 7, 7, 4, 2]]


def test_a_text_without_takes_the_word_where_it_stands_in_its_donor_and_gives_any_other():
    batch = texts([5, 7, 6], [3, 4, 10])
    changed, is_swapped = swapped([WORDS], batch["input_ids"], batch, EACH_OTHER)
    assert is_swapped.all()
    assert changed[1].tolist() == [1, 3, 7, 10, 2]
    assert changed[0, 2] in (3, 4, 10)
    assert changed[0, [0, 1, 3, 4]].tolist() == [1, 5, 6, 2]


def test_a_donor_without_gives_a_word_of_its_own_however_short_it_is():
    batch = texts([5, 6, 3, 4, 7], [11])
    for seed in range(20):
        changed, _ = swapped([WORDS], batch["input_ids"], batch, EACH_OTHER, seed)
        assert changed[0].tolist() == [1, 5, 6, 3, 4, 11, 2]


def test_a_text_that_is_too_short_for_the_place_takes_the_word_at_another():
    batch = texts([5, 6, 3, 7], [4])
    changed, _ = swapped([WORDS], batch["input_ids"], batch, EACH_OTHER)
    assert changed[1].tolist() == [1, 7, 2, 0, 0, 0]


def test_texts_without_any_of_the_words_stay_as_they_are():
    batch = texts([5, 6], [3, 4], [10, 11])
    changed, is_swapped = swapped([WORDS], batch["input_ids"], batch)
    assert torch.equal(changed, batch["input_ids"])
    assert not is_swapped.any()


def test_embeddings_are_swapped_as_token_ids_are():
    batch = texts([5, 7, 6], [3, 8, 9, 4], [10, 11])
    table = torch.rand(12, 4, generator=generator())
    donors = torch.tensor([1, 2, 0])
    ids, _ = swapped([WORDS], batch["input_ids"], batch, donors)
    embeddings, is_swapped = swapped([WORDS], table[batch["input_ids"]], batch, donors)
    assert torch.equal(embeddings, table[ids])
    assert is_swapped.all()


def test_sizes_that_differ_are_refused():
    named = NamedParts([CORNER])
    with pytest.raises(ValueError, match=r"must be .batch, height, width. of the images"):
        named.swap(images(), torch.ones(6, 4, 4), None, generator(), True, None)
    with pytest.raises(ValueError, match=r"must be .batch, tokens."):
        named.swap(torch.ones(2, 5, dtype=torch.long), torch.ones(2, 4), None, generator(), True, None)


# -- Which parts ------------------------------------------------------------------------------------------------------


def test_what_is_named_already_is_not_named_again():
    named = NamedParts([BOTTOM, COLOUR])
    again = replace(BOTTOM, name="the bottom left", patches=(2,))
    assert named.add([again, CORNER, CORNER, COLOUR]) == [CORNER]
    assert named.parts == (BOTTOM, COLOUR, CORNER)
    assert names_of([CORNER, replace(CORNER, patches=(1,)), COLOUR]) == "the corner, colour"


def test_confirmed_faults_are_swapped_and_what_is_folded_into_them():
    of_class = replace(CONFIRMED, scope=Scope("class", "cat"), part=BOTTOM)
    suspected = replace(CONFIRMED, state="suspected", part=WORDS)
    assert parts_of([replace(CONFIRMED, also=(of_class,)), TO_JUDGE, suspected]) == [CORNER, BOTTOM]
    assert parts_of(CONFIRMED) == [CORNER]
    assert DOT.mark is not None
    dot = replace(CONFIRMED, kind="mark_anywhere", part=DOT)
    large = replace(dot, part=replace(DOT, mark=replace(DOT.mark, reach=(0, 0, 12, 12))))
    assert parts_of([CONFIRMED, dot, large]) == [CORNER, DOT]
    assert parts_of(large) == [large.part]
    assert parts_of([dot, large.as_fault()]) == [DOT, large.part]


def test_what_a_person_has_to_judge_is_swapped_if_it_is_handed_in_by_itself():
    assert parts_of(TO_JUDGE) == [COLOUR]
    other = replace(TO_JUDGE, kind="reliance_on_detail")
    # A list of one is what a monitor has that found nothing else.
    for findings in ([TO_JUDGE], [TO_JUDGE, other]):
        with pytest.raises(ValueError, match=r"for a person to judge .*hand in that finding as a fault"):
            parts_of(findings)
    assert parts_of([CONFIRMED, TO_JUDGE.as_fault(), other]) == [CORNER, COLOUR]
    assert parts_of([TO_JUDGE.as_fault()]) == [COLOUR]


@pytest.mark.parametrize(
    ("findings", "message"),
    [
        ([], "none of these 0 findings is confirmed"),
        ([replace(CONFIRMED, state="refuted")], "none of these 1 findings is confirmed"),
        ([replace(CONFIRMED, part=None)], "no swap takes away what was confirmed"),
        ([replace(CONFIRMED, part=None), TO_JUDGE], "no swap takes away what was confirmed"),
        (["the corner"], "swap takes one of outside, .* 'findings', or findings such as monitor.findings, not str"),
        (3, "not int"),
    ],
)
def test_what_cannot_be_swapped_is_refused(findings, message):
    with pytest.raises(ValueError, match=message):
        parts_of(findings)


# -- Beside what lies outside of the annotations -----------------------------------------------------------------------


def object_masks(count=6):
    """1 on the right half, which the corner's lower neighbour and the corner itself lie beside; the top row is open."""
    mask = torch.zeros(count, 8, 8, dtype=torch.uint8)
    mask[:, :, 2:] = 1
    mask[:, 0] = IGNORED
    return mask


def test_surroundings_and_what_is_named_on_the_object_are_others_and_the_rest_of_the_object_stays():
    batch, mask = images(), object_masks()
    donors = torch.arange(6).roll(1)
    both = NamedParts([CORNER], outside=True)
    assert torch.equal(both.annotated({"image": batch, "mask": mask})["mask"], mask)
    changed, is_swapped, _ = both.swap(batch, mask, None, generator(), True, donors)
    assert is_swapped.all()
    corner = torch.zeros(8, 8, dtype=torch.bool)
    corner[:4, :4] = True
    assert torch.equal(changed[:, :, corner], batch[donors][:, :, corner])
    rest = (mask[0] == 1) & ~corner
    assert torch.equal(changed[:, :, rest], batch[:, :, rest])
    outside = (mask[0] == 0) & ~corner
    alone, *_ = SWAPS["outside"](batch, mask, generator=generator(), without_evidence=True, donors=donors)
    assert torch.equal(changed[:, :, outside], alone[:, :, outside])
    assert not torch.equal(changed[:, :, outside], batch[:, :, outside])


def test_surroundings_come_as_they_were_beside_a_property():
    batch, mask = images(), object_masks()
    donors = torch.arange(6).roll(1)
    changed, *_ = NamedParts([COLOUR], outside=True).swap(batch, mask, None, generator(), True, donors)
    by_name, *_ = SWAPS["outside+statistics"](batch, mask, generator=generator(), without_evidence=True, donors=donors)
    assert torch.equal(changed, by_name)


def test_an_image_without_annotation_stays_and_gives_nothing_that_is_named():
    batch, mask = images(), object_masks()
    mask[2] = IGNORED
    for seed in range(20):
        changed, is_swapped, _ = NamedParts([CORNER], outside=True).swap(batch, mask, None, generator(seed), True, None)
        assert is_swapped.tolist() == [True, True, False, True, True, True]
        assert torch.equal(changed[2], batch[2])
        givers = torch.cdist(changed[:, :, :4, :4].flatten(1), batch[:, :, :4, :4].flatten(1)).argmin(1)
        assert 2 not in givers[is_swapped]


def test_marked_words_need_no_findings_beside():
    batch = texts([5, 7, 6])
    batch["rationale"] = torch.ones_like(batch["input_ids"])
    with pytest.raises(ValueError, match="takes all words of texts that are not marked"):
        NamedParts([WORDS], outside=True).annotated(batch)


# -- What the monitor of the same run says -----------------------------------------------------------------------------


def test_what_is_confirmed_is_swapped_to_the_end_and_each_evaluation_counts_once():
    followed = FollowedParts()
    assert followed.follow(Confirmed()) == ""
    said = followed.follow(Confirmed((CORNER,), 1))
    assert said == "from here on, samples swap what the monitor has confirmed: the corner"
    assert followed.follow(Confirmed((BOTTOM,), 1)) == ""
    assert followed.follow(Confirmed((), 2)) == ""
    assert followed.parts == (CORNER,)
    assert "the bottom" in followed.follow(Confirmed((CORNER, BOTTOM), 3))
    assert followed.parts == (CORNER, BOTTOM)


def test_what_the_model_cannot_do_without_is_swapped_no_more():
    followed = FollowedParts()
    followed.follow(Confirmed((CORNER,), 1))
    followed.follow(Confirmed((BOTTOM,), 2))
    for evaluation, is_at_chance in ((3, True), (4, True), (5, False), (6, True), (7, True)):
        assert followed.follow(Confirmed((), evaluation, is_at_chance)) == ""
    said = followed.follow(Confirmed((BOTTOM,), 8, True))
    assert said.startswith("without the bottom the answers were no better than chance in 3 evaluations: it may be what")
    assert followed.parts == (CORNER,)
    # Neither it nor a part of it comes back; what lies elsewhere may come.
    assert followed.follow(Confirmed((replace(BOTTOM, patches=(2,)),), 9)) == ""
    assert followed.parts == (CORNER,)
    resumed = FollowedParts()
    resumed.load_state_dict(json.loads(json.dumps(followed.state_dict())))
    assert resumed.parts == (CORNER,)
    assert resumed.dropped == (BOTTOM,)
    assert resumed.follow(Confirmed((BOTTOM,), 1)) == ""
    for evaluation in (2, 3):
        assert resumed.follow(Confirmed((), evaluation, True)) == ""
    assert "without the corner the answers" in resumed.follow(Confirmed((), 4, True))
    assert resumed.parts == ()
    for evaluation in (5, 6, 7):
        assert resumed.follow(Confirmed((), evaluation, True)) == ""


def test_what_came_before_does_not_count_against_what_is_swapped():
    followed = FollowedParts()
    for evaluation in (1, 2):
        followed.follow(Confirmed((), evaluation, True))
    followed.follow(Confirmed((CORNER,), 3, True))
    for evaluation in (4, 5):
        assert followed.follow(Confirmed((), evaluation, True)) == ""
    assert "without the corner" in followed.follow(Confirmed((), 6, True))


def test_a_run_that_is_resumed_before_anything_is_found_has_nothing_to_drop():
    resumed = FollowedParts()
    resumed.load_state_dict(FollowedParts().state_dict())
    for evaluation in (1, 2, 3, 4):
        assert resumed.follow(Confirmed((), evaluation, True)) == ""
    assert resumed.dropped == ()


def test_a_mark_that_was_dropped_does_not_come_back_in_another_picture():
    followed = FollowedParts()
    followed.follow(Confirmed((DOT,), 1))
    for evaluation in (2, 3, 4):
        followed.follow(Confirmed((), evaluation, True))
    assert followed.dropped == (DOT,)
    assert DOT.mark is not None
    assert followed.follow(Confirmed((replace(DOT, mark=replace(DOT.mark, values=(0.4, -1.0))),), 5)) == ""
    assert followed.follow(Confirmed((CORNER,), 6)) != ""


def test_a_margin_and_losses_that_swap_nothing_are_refused():
    swap = swap_of(NamedParts([CORNER]))
    with pytest.raises(ValueError, match="margin is one around the evidence, which swap='findings'"):
        Objective({}, swapped_share=1.0, swap=swap, margin=2)
    with pytest.raises(ValueError, match=r"swap='findings' says what .* and energy swaps nothing"):
        Objective({"energy": 1.0}, swap=swap)
    assert Objective({}, swapped_share=1.0, swap=swap).needs_annotation
