"""Models of which we know what they read."""

import numpy as np
import pytest
import torch
from torch import nn

from lrptrain.batch import Sample
from lrptrain.batch.logits import class_probabilities
from lrptrain.intervention import InterventionConfig, KeptChanges, Region, effects
from lrptrain.cues.boxes import Box
from lrptrain.intervention.swap import donors_by_prediction

GRID = (4, 4)


class Reader(nn.Module):
    """Three classes by the mean colour of a rectangle."""

    def __init__(self, rows, columns):
        super().__init__()
        self.rows, self.columns = rows, columns

    def forward(self, image):
        return 20 * image[:, :, self.rows, self.columns].mean((2, 3))


class WordReader(nn.Module):
    """Class 1 if a word is there."""

    def forward(self, input_ids, attention_mask):
        has_word = ((input_ids == 7) & (attention_mask != 0)).any(1)
        return torch.stack([torch.zeros(len(has_word)), 12.0 * has_word - 6], 1)


OBJECT, CORNER = Reader(slice(8, 16), slice(8, 16)), Reader(slice(28, 32), slice(28, 32))


def pictures(count=24):
    """Colour of the class in the middle and in a corner, noise elsewhere; the middle is the evidence."""
    generator = torch.Generator().manual_seed(0)
    samples = []
    for i in range(count):
        image = 0.5 * torch.rand(3, 32, 32, generator=generator)
        mask = torch.zeros(32, 32, dtype=torch.uint8)
        mask[8:16, 8:16] = 1
        for part in (image[:, 8:16, 8:16], image[:, 28:, 28:]):
            part.zero_()
            part[i % 3] = 1
        samples.append(Sample(i, i % 3, {"image": image, "mask": mask}))
    return samples


def probabilities(model, samples):
    with torch.no_grad():
        return class_probabilities(model(torch.stack([sample.tensors["image"] for sample in samples]))).numpy()


def effect(model, samples, region, strategy="swap", **options):
    config = InterventionConfig(strategy, **{"batch_size": 7, **options})
    return run_effects(model, samples, region, probabilities(model, samples), config=config)


def run_effects(model, samples, region, known, computed_rows=None, grid=GRID, config=None, rows=None, kept=None):
    rows = np.arange(len(samples)) if rows is None else rows
    return effects(
        model,
        samples,
        rows=rows,
        computed_rows=rows if computed_rows is None else computed_rows,
        region=region,
        probabilities=known,
        grid=grid,
        config=config or InterventionConfig(),
        kept=kept,
    )


@pytest.mark.parametrize("strategy", ["swap", "inpaint", "fill"])
def test_who_reads_outside_is_moved_by_it_and_who_reads_inside_is_not(strategy):
    change, control = effect(CORNER, pictures(), Region("outside"), strategy)
    assert change.mean() > 0.6
    assert change.mean() > control.mean()
    change, control = effect(OBJECT, pictures(), Region("outside"), strategy)
    assert np.abs(change).max() < 1e-6
    assert control.mean() > change.mean() - 1e-6


@pytest.mark.parametrize(("region", "variants"), [(Region("outside"), 2), (Region("patches", (3, 7)), 2)])
def test_the_change_and_its_controls_share_a_forward_pass(region, variants):
    sizes: list[int] = []
    hook = CORNER.register_forward_hook(lambda _, arguments, __: sizes.append(len(arguments[0])))
    together = effect(CORNER, pictures(10), region)
    hook.remove()
    # That of the probabilities, then batches of 7 and 3, under the change and each control.
    assert sizes == [10, 7 * variants, 3 * variants]
    alone = effect(CORNER, pictures(10), region, batch_size=1)
    np.testing.assert_allclose(together, alone, atol=1e-6)  # float32, of probabilities


def test_the_control_of_a_swap_is_one_within_the_class():
    change, control = effect(CORNER, pictures(), Region("outside"))
    assert change.min() > 0.99
    assert np.abs(control).max() < 0.01


def test_what_is_everywhere_is_found_all_the_same():
    """A tint of the whole image: no region is like no other."""
    samples = []
    for sample in pictures():
        tint = torch.eye(3)[sample.label][:, None, None]
        samples.append(
            Sample(
                sample.sample_id, sample.label, {**sample.tensors, "image": 0.5 * sample.tensors["image"] + 0.5 * tint}
            )
        )
    change, control = effect(Reader(slice(0, 32), slice(0, 32)), samples, Region("outside"))
    assert change.mean() - control.mean() > 0.5


def test_a_judge_keeps_no_ring_that_a_loss_keeps():
    """The model reads one pixel beside the object alone: what a swap with a margin leaves where it is."""
    samples = []
    for sample in pictures():
        image = 0.5 * torch.ones(3, 32, 32)
        image[:, 8:16, 7] = torch.eye(3)[sample.label][:, None]
        samples.append(Sample(sample.sample_id, sample.label, {**sample.tensors, "image": image}))
    ring = Reader(slice(8, 16), slice(7, 8))
    change, control = effect(ring, samples, Region("outside"), margin=2)
    assert np.abs([change, control]).max() < 1e-6
    change, control = effect(ring, samples, Region("outside"))
    # Donors lose it, too, where it touches their own object, which is painted over with a margin; no class is left.
    assert change.min() > 0.5


def test_the_shape_of_the_evidence_tells_the_change_from_its_control_in_nothing():
    """The model reads the edge that a swap cuts around the object."""

    class Edge(nn.Module):
        def forward(self, image):
            inside, outside = image[:, :, 8:16, 8], image[:, :, 8:16, 7]
            return 20 * (inside - outside).abs().mean(2)

    change, control = effect(Edge(), pictures(60), Region("outside"))
    assert np.abs(change - control).mean() < 0.05


def test_a_negative_margin_is_no_margin():
    with pytest.raises(ValueError, match="margin must not be negative, not -1"):
        InterventionConfig(margin=-1)


def test_a_class_of_one_sample_has_no_control():
    samples = pictures(16)  # the first class six times, the others five times
    lonely = [sample for sample in samples if sample.label != 2] + [samples[2]]
    change, control = effect(CORNER, lonely, Region("outside"))
    assert np.isnan(change).tolist() == np.isnan(control).tolist() == [False] * 11 + [True]


def test_a_donors_own_evidence_is_not_given():
    """Here it would lie in the corner that the model reads."""
    samples = []
    for sample in pictures():
        image = sample.tensors["image"].clone()
        image[:, 28:, 28:] = 0.5
        mask = sample.tensors["mask"].clone()
        if sample.sample_id % 2:  # these show the object in the corner
            image[:, 28:, 28:] = torch.eye(3)[sample.label][:, None, None]
            mask = mask.roll((18, 18), (0, 1))
        samples.append(Sample(sample.sample_id, sample.label, {"image": image, "mask": mask}))
    change, _ = effect(CORNER, samples, Region("outside"))
    even = change[::2]
    assert even.max() < 0.2  # an object given from the corner would have moved them by 0.7


def test_patches_are_removed_and_a_random_place_is_the_control():
    for model, region in ((CORNER, (15,)), (OBJECT, (5,))):
        change, control = effect(model, pictures(), Region("patches", region), "inpaint")
        assert change.mean() > 0.2
        assert control.mean() < 0.5 * change.mean()
    change, _ = effect(CORNER, pictures(), Region("patches", (0,)), "inpaint")
    assert np.abs(change).max() < 1e-6


def test_a_redundant_cue_can_be_removed_but_not_exchanged():
    """The same colour in two corners, of which the model reads the brighter one."""

    class Both(nn.Module):
        def forward(self, image):
            corners = torch.stack([image[:, :, :4, :4].mean((2, 3)), image[:, :, 28:, 28:].mean((2, 3))])
            return 20 * corners.amax(0) - 20 * (1 - corners).amax(0)

    samples = []
    for sample in pictures():
        image = sample.tensors["image"].clone()
        image[:, :8, :8] = image[:, 28:, 28:].mean((1, 2))[:, None, None]
        samples.append(Sample(sample.sample_id, sample.label, {"image": image}))
    corner = Region("patches", (0,))
    # A single class has no donor of another one among its own samples: all of them give.
    config = InterventionConfig(batch_size=5)
    rows = np.arange(0, 24, 3)
    answers = probabilities(Both(), samples)
    change, control = run_effects(Both(), samples, corner.in_exchange(), answers, rows=rows, config=config)
    assert len(change) == 8
    assert change.min() > 0.4
    assert np.abs(control).max() < 1e-6  # the same corner of another sample of the class
    # Evidence is not given: here that of every donor covers the corner.
    mask = torch.zeros(32, 32, dtype=torch.uint8)
    mask[:16, :16] = 1
    marked = [Sample(each.sample_id, each.label, {**each.tensors, "mask": mask}) for each in samples]
    change, _ = run_effects(Both(), marked, corner.in_exchange(), answers, config=config)
    assert change.max() < 0.3


def test_a_place_of_a_text_is_exchanged_for_the_same_place():
    samples = texts()
    for sample in samples:  # the word is evidence elsewhere, and no donor gives it from there
        sample.tensors["input_ids"][2] = 7
    answers = np.array([[0.0025, 0.9975] if i % 2 else [0.9975, 0.0025] for i in range(20)])

    class Third(nn.Module):
        def forward(self, input_ids, attention_mask):
            return torch.stack([-6.0 + 12 * (input_ids[:, 4] == word) for word in (8, 7)], 1)

    region = Region("place", 3).in_exchange()
    change, control = run_effects(Third(), samples, region, answers, grid=None, config=InterventionConfig(batch_size=6))
    assert change.min() > 0.9
    assert np.abs(control).max() < 0.1
    for sample in samples:
        sample.tensors["rationale"][4] = 1
    change, control = run_effects(Third(), samples, region, answers, grid=None, config=InterventionConfig(batch_size=6))
    assert np.nanmax(np.abs([change, control]), initial=0) < 0.01


@pytest.mark.parametrize("controls", [1, 3])
def test_controls_are_as_many_as_asked_for_and_lie_elsewhere(controls):
    """The model gives every image the answer that its brightest patch stands for, and remembers what it was shown."""
    shown: list[torch.Tensor] = []

    class Remembers(nn.Module):
        def forward(self, image):
            shown.append(image)
            return 20 * image.mean((2, 3))

    generator = torch.Generator().manual_seed(0)
    samples = [
        Sample(i, i % 3, {"image": torch.rand(3, 32, 32, generator=generator)}) for i in range(24)
    ]  # noise: what is painted over is seen
    answers = probabilities(Remembers(), samples)
    shown.clear()
    config = InterventionConfig("inpaint", batch_size=24, controls=controls)
    change, control = run_effects(Remembers(), samples, Region("patches", (5, 6)), answers, config=config)
    images = torch.stack([sample.tensors["image"] for sample in samples])
    variants = torch.cat(shown).view(1 + controls, 24, 3, 32, 32)
    region = torch.zeros(32, 32, dtype=torch.bool)
    region[8:16, 8:24] = True
    assert torch.equal((variants[0] != images).any(1), region.expand(24, -1, -1))
    offsets = set()
    for variant in variants[1:]:
        for place in (variant != images).any(1):
            ((down, right),) = [
                (down, right)
                for down in range(0, 32, 8)
                for right in range(0, 32, 8)
                if torch.equal(place, region.roll((down, right), (0, 1)))
            ]
            offsets.add((down, right))
    # Whole patches away, by a quarter to three quarters of each side: never the place itself, and not always the same.
    assert offsets <= {(down, right) for down in (8, 16, 24) for right in (8, 16, 24)}
    assert len(offsets) >= 5
    falls = [
        answers.max(1) - class_probabilities(20 * variant.mean((2, 3))).numpy()[np.arange(24), answers.argmax(1)]
        for variant in variants
    ]
    np.testing.assert_allclose(change, falls[0], atol=1e-6)  # float32, of probabilities
    np.testing.assert_allclose(control, np.mean(falls[1:], axis=0), atol=1e-6)


def test_it_does_not_matter_who_computes_what():
    samples, rows = pictures(), np.arange(24)
    answers = probabilities(CORNER, samples)
    of_all = run_effects(CORNER, samples, Region("outside"), answers, config=InterventionConfig(batch_size=24))
    parts = [
        run_effects(CORNER, samples, Region("outside"), answers, rows[k::2], config=InterventionConfig(batch_size=5))
        for k in (0, 1)
    ]
    for together, first, second in zip(of_all, *parts, strict=True):
        np.testing.assert_allclose(together[::2], first, atol=1e-5)  # float32 logits of up to 20
        np.testing.assert_allclose(together[1::2], second, atol=1e-5)  # float32 logits of up to 20


def test_donors_are_read_as_another_class():
    predicted = np.random.default_rng(0).choice(3, 50, p=[0.8, 0.1, 0.1])
    rows = np.arange(0, 50, 2)
    donors = donors_by_prediction(predicted, rows, seed=3)
    assert (donors[1::2] == -1).all()
    assert set(donors[rows]) <= set(rows)
    assert (predicted[donors[rows]] != predicted[rows]).all()
    within_class = donors_by_prediction(predicted, rows, seed=3, same_class=True)
    assert (predicted[within_class[rows]] == predicted[rows])[within_class[rows] >= 0].all()
    counts = np.bincount(predicted[rows])
    assert ((within_class[rows] >= 0) == (counts[predicted[rows]] > 1)).all()  # whoever has another of its class
    assert counts.max() > 1
    assert (within_class[rows] != rows).all()
    assert set(within_class[rows]) <= {-1, *rows}
    with pytest.raises(ValueError, match="predicts the same class for all"):
        donors_by_prediction(np.zeros(5, int), np.arange(5), 0)


@pytest.mark.parametrize("same_class", [False, True])
def test_a_few_odd_samples_are_not_everyones_donors(same_class):
    # One odd sample would be the donor of all others, whose effects would be one effect, tested as if they were many.
    predicted = np.zeros(64, int)
    predicted[:4] = [1, 1, 2, 2]
    with pytest.raises(ValueError, match="the same class for all but 4 of these samples: too few to swap with"):
        donors_by_prediction(predicted, np.arange(64), 0, same_class)
    predicted[4] = 2
    assert (donors_by_prediction(predicted, np.arange(64), 0, same_class) >= 0).all()


def test_a_text_that_the_control_moves_up_is_no_proof():
    class Table(nn.Module):
        """Word 7 speaks for class 1, four of word 5 against it, and fewer of word 5 for it."""

        def forward(self, input_ids, attention_mask):
            count = ((input_ids == 5) & (attention_mask != 0)).sum(1)
            has_word = ((input_ids == 7) & (attention_mask != 0)).any(1)
            logit = 2.6 * has_word - 2.2 + 4.0 * ((count > 0) & (count < 4)) + 1.6 * (count == 0) * has_word
            return torch.stack([torch.zeros_like(logit), logit], 1)

    ids = [[1, 7, 5, 5, 5, 5, 2], [1, 7, 8, 8, 8, 8, 2]]
    samples = [
        Sample(i, 1, {"input_ids": torch.tensor(each), "attention_mask": torch.ones(7, dtype=torch.long)})
        for i, each in enumerate(ids)
    ]
    with torch.no_grad():
        batch = {name: torch.stack([sample.tensors[name] for sample in samples]) for name in samples[0].tensors}
        answers = class_probabilities(Table()(**batch)).numpy()
    region = Region("token", 7)
    recorder = KeptChanges({region: [{0, 1}]}, most=1)
    change, control = run_effects(Table(), samples, region, answers, grid=None, kept=recorder)
    # By logits 0.4, -2.2 and 4.4, and 2 and -2.2: 0.60 - 0.10, 0.60 - 0.99; 0.88 - 0.10.
    np.testing.assert_allclose(change, [0.499, 0.781], atol=1e-3)
    np.testing.assert_allclose(control, [-0.389, 0.0], atol=1e-3)
    assert (change - control).argmax() == 0
    assert recorder.furthest(region, {0, 1}) == [1]


def texts(count=20):
    """A word in half of the texts, outside of the rationale."""
    rng = np.random.default_rng(0)
    samples = []
    for i in range(count):
        length = 8 + i % 4
        ids = torch.tensor([101, *rng.integers(20, 90, length).tolist(), 102])
        rationale = torch.tensor([255, 1, 1, *[0] * (length - 2), 255])
        ids[4] = 7 if i % 2 else 8
        samples.append(
            Sample(i, i % 2, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "rationale": rationale})
        )
    return samples


@pytest.mark.parametrize(("region", "strategy"), [
    (Region("outside"), "swap"), (Region("outside"), "fill"), (Region("token", 7), "swap"), (Region("place", 3), "fill")
])  # fmt: skip
def test_a_word_that_is_read_moves_the_prediction(region, strategy):
    samples, rows = texts(), np.arange(20)
    answers = np.array([[0.0025, 0.9975] if i % 2 else [0.9975, 0.0025] for i in rows])
    change, control = run_effects(
        WordReader(), samples, region, answers, grid=None, config=InterventionConfig(strategy, batch_size=6)
    )
    with_word = change[1::2]
    assert np.nanmean(with_word) > 0.7
    assert np.nanmean(with_word) > np.nanmean(control[1::2]) + 0.2
    if region.kind == "token":
        assert np.isnan(change[::2]).all()


def test_texts_without_a_mask_cannot_lose_tokens():
    samples = [Sample(i, 0, {"input_ids": torch.arange(5)}) for i in range(3)]
    with pytest.raises(ValueError, match="attention_mask"):
        run_effects(
            WordReader(), samples, Region("token", 2), np.full((3, 2), 0.5), [0], None, InterventionConfig("fill")
        )


def test_a_strategy_that_is_unknown_is_not_carried_out_as_another():
    with pytest.raises(ValueError, match="strategy must be one of"):
        InterventionConfig("blur")


def test_a_property_of_a_class_counts_by_how_far_it_draws_others_to_the_class():
    """Red is a class; what is not, is told by what is brighter on the left or on the right, and never by red."""

    class Reddish(nn.Module):
        def forward(self, image):
            red = image[:, 0].mean((1, 2)) - image[:, 1:].mean((1, 2, 3))
            left = image[:, 1, :, :16].mean((1, 2)) - image[:, 1, :, 16:].mean((1, 2))
            return 20 * torch.stack([red - 0.2, left, -left], 1)

    generator = torch.Generator().manual_seed(0)
    samples = []
    for i in range(30):
        image = 0.4 + 0.2 * torch.rand(3, 32, 32, generator=generator)
        if i % 3 == 0:
            image[0] += 0.4
        else:
            image[:, :, 16 * (i % 3 - 1) :][:, :, :16] += 0.2
        samples.append(Sample(i, i % 3, {"image": image}))
    answers = probabilities(Reddish(), samples)
    assert (answers.argmax(1) == np.arange(30) % 3).all()
    others = np.flatnonzero(np.arange(30) % 3)
    rise, control = run_effects(Reddish(), samples, Region("statistics", (0,)), answers, rows=others)
    assert rise.min() > 0.5
    assert np.abs(control).max() < 0.05
    alone = run_effects(
        Reddish(), samples, Region("statistics", (0,)), answers, rows=others, config=InterventionConfig(batch_size=1)
    )
    together = run_effects(Reddish(), samples, Region("statistics", (0,)), answers, rows=others)
    np.testing.assert_allclose(together, alone, atol=1e-6)  # float32, of probabilities


@pytest.mark.parametrize("strategy", ["swap", "inpaint", "fill"])
def test_a_box_of_its_own_is_painted_over_in_every_image(strategy):
    """The class's colour is in one corner of the even images, in the opposite one of the odd ones."""

    class BothCorners(nn.Module):
        def forward(self, image):
            return 20 * (image[:, :, :4, :4] + image[:, :, 28:, 28:]).mean((2, 3))

    corners = [Box(0, 0, 4, 4), Box(28, 28, 32, 32)]
    samples = []
    for i in range(24):
        image = torch.zeros(3, 32, 32)
        top, left, bottom, right = corners[i % 2]
        image[i % 3, top:bottom, left:right] = 1
        samples.append(Sample(i, i % 3, {"image": image}))
    boxes = [None if i in (3, 8) else corners[i % 2] for i in range(24)]
    rows = np.arange(1, 24)  # so that a sample's number differs from its place in a batch
    answers = probabilities(BothCorners(), samples)
    config = InterventionConfig(strategy, batch_size=7)
    region = Region("boxes", boxes=tuple(boxes))
    change, control = run_effects(BothCorners(), samples, region, answers, config=config, rows=rows)
    assert set(rows[np.isnan(change)]) == {3, 8}
    # Without the colour nothing tells the three classes apart; the random box is never at the corner, and all black.
    if strategy != "fill":  # the mean colour is not quite the same in all channels
        np.testing.assert_allclose(change[~np.isnan(change)], 2 / 3, atol=1e-6)
    assert (np.nan_to_num(change, nan=1.0) > 0.5).all()
    assert np.nanmax(np.abs(control)) < 1e-6
    wrong = Region("boxes", boxes=tuple(corners[(i + 1) % 2] for i in range(24)))
    change, _ = run_effects(BothCorners(), samples, wrong, answers, config=config, rows=rows)
    assert np.nanmax(np.abs(change)) < 1e-6


@pytest.mark.parametrize("strategy", ["swap", "inpaint"])
def test_what_falls_furthest_is_kept_with_its_inputs_and_answers(strategy):
    samples = pictures()
    region = Region("outside") if strategy == "swap" else Region("patches", (15,))
    answers = probabilities(CORNER, samples)
    groups = [set(range(24)), {1, 4, 7}, {2}]
    recorder = KeptChanges({region: groups, Region("patches", (0,)): [{0}]}, most=2)
    config = InterventionConfig(strategy, batch_size=5)
    change, control = run_effects(CORNER, samples, region, answers, config=config, kept=recorder)
    differences = change - np.abs(control)
    for group in groups:
        expected = sorted(group, key=lambda row: (-differences[row], row))[:2]
        assert recorder.furthest(region, group) == expected
    # Nothing else is held: two of each group at most.
    assert {row for _, row in recorder.changes} == {row for group in groups for row in recorder.furthest(region, group)}
    for (_, row), pair in recorder.changes.items():
        answer = answers[row].argmax()
        for inputs, probability, fall in (
            (pair.changed, pair.changed_answer, change[row]),
            (pair.control, pair.control_answer, control[row]),
        ):
            with torch.no_grad():
                again = class_probabilities(CORNER(inputs["image"][None])).numpy()[0]
            np.testing.assert_allclose(probability, again, atol=1e-5)
            assert answers[row][answer] - probability[answer] == pytest.approx(fall, abs=1e-6)
        assert pair.fall == pytest.approx(differences[row], abs=1e-6)


@pytest.mark.parametrize("controls", [1, 4])
def test_the_control_of_a_word_is_the_mean_over_as_many_random_words_as_asked_for(controls):
    """The model is sure by as much as the least of the words that are left, and remembers what it was shown."""
    shown: list[torch.Tensor] = []

    class Remembers(nn.Module):
        def forward(self, input_ids, attention_mask):
            shown.append(input_ids)
            value = torch.where(attention_mask != 0, input_ids, 99).amin(1) / 10
            return torch.stack([torch.zeros_like(value), value], 1)

    word = torch.ones(7, dtype=torch.long)
    samples = [
        Sample(i, i % 2, {"input_ids": word * 0 + torch.arange(7) + 3 + i, "attention_mask": word}) for i in range(8)
    ]
    with torch.no_grad():
        answers = Remembers()(
            *(torch.stack([each.tensors[n] for each in samples]) for n in ("input_ids", "attention_mask"))
        )
    answers = class_probabilities(answers).numpy()
    shown.clear()
    config = InterventionConfig("inpaint", batch_size=8, controls=controls)
    change, control = run_effects(
        Remembers(), samples, Region("place", 3), answers, grid=None, config=config, rows=np.arange(8)
    )
    variants = torch.cat(shown).view(1 + controls, 8, 6)
    falls = []
    for variant in variants:
        value = variant.amin(1).double() / 10
        falls.append(answers.max(1) - torch.where(value >= 0, value.sigmoid(), 1 - value.sigmoid()).numpy())
    np.testing.assert_allclose(change, falls[0], atol=1e-6)
    np.testing.assert_allclose(control, np.mean(falls[1:], axis=0), atol=1e-6)
    assert len({tuple(row) for variant in variants[1:] for row in (variant - variant[:, :1]).tolist()}) > 1
