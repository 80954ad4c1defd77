"""Training on swapped surroundings: the step sees the batch with what is not evidence taken from other samples."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, exchanged, explicit, fit, guidance, plain_step, sgd_module, stepped, weights
from guided_loops import LOOPS
from setting import vit
from test_guidance_gradients import EXACT, assert_close
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertForSequenceClassification

import lrptrain
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual.colour import Colour

SEED = hash((0, 0, 0, 1)) % 2**63
SEED_OF_LOSSES = hash((0, 0, 0)) % 2**63
COLOURS = Colour.of("image", "unreviewed")


def swapped_images(columns: dict[str, Tensor], rows: Tensor | None = None, share: float = 1.0) -> dict[str, Tensor]:
    """The batch that the first step sees, of which some rows are annotated."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.rand(len(columns["image"]) if rows is None else int(rows.sum()), generator=generator)
    swapped = exchanged(columns, generator)["image"]
    chosen = drawn < share if rows is None else rows
    return {**columns, "image": torch.where(chosen[:, None, None, None], swapped, columns["image"])}


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "a line"])
def test_a_step_is_that_of_the_swapped_batch(loop, tmp_path):
    columns = annotated_data()
    trained, monitored = LOOPS[loop](vit().double(), columns, {"loss": "swap", "on_error": "raise"}, 6, 1, tmp_path)
    expected = plain_step(swapped_images(columns))
    assert_close(trained, expected, EXACT)
    unswapped = plain_step(columns)
    assert any(not torch.allclose(expected[name], unswapped[name], atol=1e-6) for name in expected)
    values = getattr(monitored, "values", None) or monitored.guidance.values
    assert values["guidance/swapped"] == values["guidance/samples"] == 6
    assert values["guidance/total"] == 0
    assert values["guidance/applied_weight"] == 1
    assert monitored.failures == 0


@pytest.mark.parametrize("annotated", [False, True])
def test_colours_are_swapped_without_any_annotation(tmp_path, annotated):
    columns = annotated_data()
    del columns["mask"]
    generator = torch.Generator().manual_seed(SEED)
    torch.rand(6, generator=generator)
    expected = plain_step(exchanged(columns, generator, COLOURS))
    # Where there is an annotation, it is not read: its values and its size may be anything.
    given = {**columns, "mask": torch.full((6, 1), 7)} if annotated else columns
    callback = guidance("swap", swap="colour")
    assert_close(stepped(tmp_path, callback, given), expected, EXACT)
    assert callback.guidance.values["guidance/swapped"] == callback.guidance.values["guidance/samples"] == 6


def test_consistency_under_swapped_colours_is_its_own_divergence(tmp_path):
    columns = annotated_data()
    del columns["mask"]
    net = explicit(vit().double())
    swapped = exchanged(columns, torch.Generator().manual_seed(SEED_OF_LOSSES), COLOURS)
    before, after = (net(x["image"]).log_softmax(1) for x in (columns, swapped))
    callback = guidance("consistency", weight=2.0, swap="colour")
    stepped(tmp_path, callback, columns)
    divergence = (before.exp() * (before - after)).sum(1).mean().detach()
    assert float(callback.guidance.values["guidance/consistency"]) == pytest.approx(float(divergence), rel=1e-9)


def test_only_annotated_samples_are_swapped(tmp_path):
    columns = annotated_data(rows=(1, 4))
    rows = torch.tensor([False, True, False, False, True, False])
    assert_close(stepped(tmp_path, guidance("swap"), columns), plain_step(swapped_images(columns, rows)), EXACT)


def test_a_share_of_the_samples_is_swapped(tmp_path):
    columns = annotated_data()
    drawn = torch.rand(6, generator=torch.Generator().manual_seed(SEED)) < 0.5
    assert 0 < drawn.sum() < 6
    assert_close(
        stepped(tmp_path, guidance({"swap": 0.5}, weight=None), columns),
        plain_step(swapped_images(columns, share=0.5)),
        EXACT,
    )


def test_losses_beside_it_judge_what_the_model_saw(tmp_path):
    columns = annotated_data()
    seen = swapped_images(columns)
    assert_close(
        stepped(tmp_path / "both", guidance({"swap": 1.0, "energy": 0.5}, weight=None), columns),
        stepped(tmp_path / "seen", guidance({"energy": 0.5}, weight=None), seen),
        EXACT,
    )


def test_the_swap_distance_begins_with_what_the_step_gave(tmp_path):
    columns = annotated_data()
    distances = []
    for loss in ("swap", "consistency"):
        callback = guidance(loss, compare_every_n_batches=1)
        fit(tmp_path / loss, sgd_module(), columns, callback)
        distances.append(callback.guidance.values["guidance/swap_distance"])
    assert distances[0] == pytest.approx(distances[1], rel=1e-9)
    assert distances[0] > 0


class Texts(nn.Module):
    """A small BERT, called by its token ids."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        size: dict[str, Any] = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = BertConfig(**size, intermediate_size=16, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        self.bert = BertForSequenceClassification(config).double()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.bert(input_ids=input_ids, attention_mask=attention_mask).logits


SPECIAL = {0, 1, 2}
"""Padding, and what every text begins and ends with."""


def texts_seen() -> tuple[dict[str, Tensor], list[Tensor], Texts]:
    """A batch of texts, the ids that a model of them was given, and the model."""
    ids = 5 + torch.randperm(32, generator=torch.Generator().manual_seed(1)).view(4, 8)
    ids[:, 0], ids[[0, 2, 3], 7], ids[1, 5] = 1, 2, 2
    attention = torch.ones_like(ids)
    attention[1, 6:] = ids[1, 6:] = 0
    rationale = torch.zeros_like(ids)
    rationale[:, 2:4] = 1
    batch = {"input_ids": ids, "attention_mask": attention, "rationale": rationale, "label": torch.tensor([0, 1, 0, 1])}
    seen: list[Tensor] = []
    model = Texts()
    model.bert.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True)
    return batch, seen, model


@pytest.mark.parametrize("loss", ["swap", "consistency"])
def test_what_lies_outside_of_rationales_is_taken_of_another_text(loss):
    """Without a tokenizer; the evidence and both ends stay, and sources give no evidence."""
    batch, seen, model = texts_seen()
    ids = batch["input_ids"]
    guide = lrptrain.Guidance(loss, weight=1.0, on_error="raise", compare_every_n_batches=1)
    with guide.step(model, batch) as step:
        step.guided(F.cross_entropy(model(ids, batch["attention_mask"]), batch["label"])).backward()
    swapped = [given for given in seen if given.shape != ids.shape or not torch.equal(given, ids)]
    assert len(swapped) >= 2  # that of the loss or the step, and that of the swap distance
    outside = [{*row.tolist()} - {*row[2:4].tolist()} - SPECIAL for row in ids]
    for given in swapped:
        for row, own in zip(given.tolist(), ids.tolist(), strict=True):
            words = [token for token in row if token]
            assert words[0] == 1
            assert words[-1] == 2
            evidence = own[2:4]
            assert [token for token in words if token in evidence] == evidence
            others = {*words} - {*evidence} - SPECIAL
            assert any(others == each for each in outside)
    changed = [{*row.tolist()} != {*own.tolist()} for row, own in zip(swapped[0], ids, strict=True)]
    assert any(changed)


def test_maps_of_swapped_texts_are_judged_where_their_evidence_is_now():
    """A rationale moves with its tokens: the loss on the map is that of the moved one."""
    batch, _, model = texts_seen()
    judged: list[Any] = []
    guide = lrptrain.Guidance({"swap": 1.0, "energy": 1.0}, on_error="raise", compare_every_n_batches=0)
    losses = guide.state.objective.__class__.losses

    def noted(self, forward, annotation, *others):
        judged.append((forward.explained, annotation))
        return losses(self, forward, annotation, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guide.state.objective.__class__, "losses", noted)
        with guide.step(model, batch) as step:
            step.guided(F.cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["label"]))
    ((ids, annotation),) = judged
    for given, marks, own in zip(ids, annotation, batch["input_ids"], strict=True):
        assert given[marks == 1].tolist() == own[2:4].tolist()


def test_embeddings_and_texts_without_a_mask_are_refused():
    batch, _, model = texts_seen()
    guide = lrptrain.Guidance("swap")

    class Bare(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return model(input_ids, torch.ones_like(input_ids))

    class Embedded(nn.Module):
        def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
            return model.bert(inputs_embeds=inputs_embeds, attention_mask=attention_mask).logits

    bare, embedded = Bare(), Embedded()
    embedded.bert = model.bert
    with pytest.raises(ValueError, match="rewrites texts by their token ids"), guide.step(bare, batch):
        bare(batch["input_ids"])
    vectors = model.bert.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    with pytest.raises(ValueError, match="rewrites texts by their token ids"), guide.step(embedded, batch):
        embedded(vectors, batch["attention_mask"])


def test_a_failure_leaves_the_batch_as_it_is(tmp_path, monkeypatch):
    columns = annotated_data(12)
    calls: list[int] = []
    exchange = Surroundings.exchange

    def second_fails(self: Surroundings, *batches: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no swap")
        return exchange(self, *batches)

    monkeypatch.setattr(Surroundings, "exchange", second_fails)
    callback = guidance("swap", on_error="warn", compare_every_n_batches=0)
    pl_module = sgd_module()
    with pytest.warns(UserWarning, match="no swap"):
        fit(tmp_path, pl_module, columns, callback)
    assert callback.failures == 1
    assert callback.guidance.values["guidance/swapped"] == 0
    assert all(bool(x.isfinite().all()) for x in weights(pl_module).values())


def test_a_call_of_its_own_is_refused():
    guide = lrptrain.Guidance("swap", weight=1.0)
    with pytest.raises(ValueError, match="swap changes what your own step gives the model"):
        guide(vit().double(), annotated_data())


def test_annotations_that_mark_everything_leave_nothing_to_swap(tmp_path):
    columns = annotated_data()
    columns["mask"][:] = 1
    with pytest.raises(ValueError, match="nothing to swap"):
        stepped(tmp_path, guidance("swap"), columns)


def test_a_batch_of_one_sample_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the first guided batch has one sample"):
        stepped(tmp_path, guidance("swap"), annotated_data(1))


def test_without_a_loss_blocks_may_be_computed_again_by_any_checkpoint():
    columns = annotated_data()

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = vit().double()

        def forward(self, image: Tensor) -> Tensor:
            tokens = self.net.forward_features(image)
            return checkpoint(self.net.forward_head, tokens, use_reentrant=True)

    model = Checkpointed()
    for loss in ("swap", "swap+consistency"):
        guide = lrptrain.Guidance(loss, on_error="raise", compare_every_n_batches=0)
        with guide.step(model, columns) as step:
            task_loss = F.cross_entropy(model(columns["image"]), columns["label"])
            if loss == "swap":
                step.guided(task_loss)
                assert guide.values["guidance/swapped"] == 6
            else:
                with pytest.raises(ValueError, match="reentrant"):
                    step.guided(task_loss)


@pytest.mark.parametrize(
    ("options", "scale", "says"), [({}, 1.0, True), ({}, 1e-4, False), ({"weight": 10.0}, 1.0, False)]
)
def test_a_bounded_guidance_says_once_that_answers_still_change(options, says, scale):
    """The first comparison is that of a model that has learned nothing yet."""
    columns, said = annotated_data(), list[str]()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3)).double()
    with torch.no_grad():
        net[1].weight *= 10 * scale
    guide = lrptrain.Guidance("consistency", on_error="raise", compare_every_n_batches=1, **options)
    guide.state.messages.send = said.append
    counts = []
    for _ in range(3):
        with guide.step(net, columns) as step:
            step.guided(F.cross_entropy(net(columns["image"]), columns["label"])).backward()
        counts.append(sum("answers still change by" in line for line in said))
    assert counts == [0, 1, 1] if says else counts == [0, 0, 0]
