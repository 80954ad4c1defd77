"""Training on texts that take their length, punctuation, numbers or the like from each other, in every kind of loop."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from guided import RATE, descended
from hugging_face import quiet_arguments
from test_guidance_gradients import EXACT, assert_close
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    GPT2Config,
    GPT2ForSequenceClassification,
    Trainer,
)
from word_pieces import ids_of, word_pieces

import lrptrain
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.family import Family
from lrptrain.cues.length import Length
from lrptrain.cues.phrase import Phrase
from lrptrain.cues.sources import random_sources
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language

SEED = hash((0, 0, 0, 1)) % 2**63
TOKENIZER = word_pieces(model_max_length=40, cls_token="[CLS]", sep_token="[SEP]")
WRITTEN = ["so it goes ! !", "NO WAY", "See 1984 . now", "# go to @ me", "a b c d e f g", "x"]
KINDS = ("length", "punctuation", "numbers", "links, mentions, tags and dates", "capitalised words")


def texts(written: Sequence[str] = WRITTEN) -> dict[str, Tensor]:
    rows = [ids_of(text) for text in written]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.arange(6) % 2}


def bert() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
    )  # fmt: skip
    return BertForSequenceClassification(config).double()


class Module(pl.LightningModule):
    """A stranger's, which knows its tokenizer and calls its model by place."""

    def __init__(self, net: BertForSequenceClassification, tokenizer: Any = TOKENIZER) -> None:
        super().__init__()
        self.net = net
        self.words = tokenizer

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        logits = self.net(batch["input_ids"], batch["attention_mask"]).logits
        return F.cross_entropy(logits, batch["labels"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=RATE)


def rows_of(columns: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    return [{name: values[row] for name, values in columns.items()} for row in range(len(columns["labels"]))]


def quiet_trainer(at: Any, callback: pl.Callback) -> pl.Trainer:
    """Lightning for one epoch, without all that it prints and writes."""
    return pl.Trainer(
        max_epochs=1, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=at,
    )  # fmt: skip


def by_lightning(net: BertForSequenceClassification, options: dict[str, Any], at: Any, tokenizer=TOKENIZER) -> Any:
    guidance = RelevanceGuidance(**options)
    trainer = quiet_trainer(at, guidance)
    trainer.fit(Module(net, tokenizer), DataLoader(cast(Dataset, rows_of(texts())), batch_size=6))
    return guidance


def by_step(net: BertForSequenceClassification, options: dict[str, Any], at: Any) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    guidance = lrptrain.Guidance(**options, optimizer=optimizer, tokenizer=TOKENIZER)
    batch = texts()
    with guidance.step(net, batch) as step:
        step.guided(net(**batch).loss).backward()
    optimizer.step()
    return guidance


def by_transformers(net: BertForSequenceClassification, options: dict[str, Any], at: Any) -> Any:
    arguments = quiet_arguments(
        at,
        max_steps=1,
        per_device_train_batch_size=6,
        learning_rate=RATE,
        optim="sgd",
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
    )
    trainer = Trainer(net, arguments, train_dataset=rows_of(texts()), processing_class=TOKENIZER)
    guidance = lrptrain.guide(trainer, **options)
    trainer.train()
    return guidance


LOOPS = {"Lightning": by_lightning, "a step": by_step, "transformers": by_transformers}


LANGUAGE = Language(TOKENIZER.convert_ids_to_tokens, text_form(TOKENIZER, bert()))
LENGTH = Length("the length", "unreviewed", LANGUAGE)


def rewritten(kind: str, batch: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
    """Texts that have something of each other."""
    cue = LENGTH if kind == "length" else Family.of(kind, "unreviewed", LANGUAGE)
    sources = random_sources(torch.ones(6, dtype=torch.bool), generator)
    return cue.exchange(batch, {name: x[sources] for name, x in batch.items()})


def step_by_hand(kind: str) -> dict[str, Tensor]:
    """The weights after one step of plain PyTorch on texts that have something of each other."""
    batch = texts()
    labels = batch.pop("labels")
    generator = torch.Generator().manual_seed(SEED)
    torch.rand(6, generator=generator)  # which texts are swapped: all
    changed = rewritten(kind, batch, generator)
    assert changed["input_ids"].tolist() != batch["input_ids"].tolist()
    net = bert()
    return descended(net, F.cross_entropy(net(**changed).logits, labels))


@pytest.mark.parametrize(("loop", "kind"), [*((loop, "length") for loop in LOOPS), *(("a step", x) for x in KINDS[1:])])
def test_a_step_is_that_of_texts_with_something_of_each_other(loop, kind, tmp_path):
    net = bert()
    guidance = LOOPS[loop](net, {"loss": "swap", "swap": kind, "on_error": "raise"}, tmp_path)
    assert_close(dict(net.named_parameters()), step_by_hand(kind), EXACT)
    values = getattr(guidance, "values", None) or guidance.guidance.values
    assert values["guidance/swapped"] == values["guidance/samples"] == 6


def tokens_of(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The ids of every text without its padding."""
    return [row[attended != 0].tolist() for row, attended in zip(ids, mask, strict=True)]


def test_half_of_the_texts_stay_as_they_are_beside_wider_ones():
    """Texts that are given longer numbers make the batch wider; what is not swapped is filled up with them."""
    batch = texts(["abcdefg 7", "x 198419841984", "u", "v 5", "abcdef 61", "w"])
    before = batch["input_ids"].shape[1]
    net = bert()
    seen: list[tuple[Tensor, Tensor]] = []
    net.bert.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args[0], kwargs["attention_mask"])), with_kwargs=True
    )
    widths = set()
    for seed in range(8):
        guidance = lrptrain.Guidance(
            {"swap": 0.5}, swap="numbers", on_error="raise", tokenizer=TOKENIZER, seed=seed, compare_every_n_batches=0
        )
        with guidance.step(net, batch) as step:
            step.guided(net(**batch).loss)
        ids, mask = seen.pop()
        widths.add(ids.shape[1])
        pairs = zip(tokens_of(ids, mask), tokens_of(batch["input_ids"], batch["attention_mask"]), strict=True)
        same = sum(written == own for written, own in pairs)
        assert 6 - int(guidance.values["guidance/swapped"]) <= same
        assert (ids[mask == 0] == 0).all()
    assert min(widths) == before < max(widths)


class Wrapped(torch.nn.Module):
    """A stranger's own model, with names of its own and a mask of truth values."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bert()

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        assert attention_mask.dtype == torch.bool
        return self.net(tokens, attention_mask).logits


WORD = Phrase("the word 'x'", "unreviewed", LANGUAGE, phrases=(((ids_of("x")[1],),),))


@pytest.mark.parametrize("swap", ["length", [LENGTH, WORD]], ids=["a length", "words, too"])
def test_a_model_with_other_names_takes_lengths_and_words(swap):
    """Its ids are the text, and no argument beside it."""
    net = Wrapped()
    guidance = lrptrain.Guidance("swap", swap=swap, on_error="raise", compare_every_n_batches=1)
    batch = texts()
    with guidance.step(net, {**batch, "label": batch["labels"]}) as step:
        step.guided(F.cross_entropy(net(batch["input_ids"], batch["attention_mask"] != 0), batch["labels"]))
    assert guidance.values["guidance/swapped"] == 6
    assert guidance.values["guidance/swap_distance"] > 0


@pytest.mark.parametrize(("padded", "share"), [(True, 0.5), (False, 1.0)])
def test_a_model_that_looks_for_its_padding_finds_it(padded, share):
    """GPT-2 reads its answer at the last token that is no padding: each text has the answer that it has alone."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(TOKENIZER), n_embd=16, n_layer=1, n_head=2, n_positions=40, pad_token_id=9,
        initializer_range=0.3, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    net = GPT2ForSequenceClassification(config).double()
    batch = texts()
    batch["input_ids"][batch["attention_mask"] == 0] = 9
    if not padded:
        batch = {name: values[2:4] for name, values in batch.items()}
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
        batch["input_ids"] = torch.tensor([ids_of("a ! 19"), ids_of("b c d e")])
        batch = {name: values[:, :6] if values.ndim == 2 else values for name, values in batch.items()}
    for seed in range(3):
        seen: list[tuple[Tensor, Tensor]] = []
        handle = net.transformer.register_forward_pre_hook(
            lambda _, args, kwargs, seen=seen: seen.append((args[0], kwargs["attention_mask"])), with_kwargs=True
        )
        guidance = lrptrain.Guidance(
            {"swap": share}, swap="numbers", on_error="raise", tokenizer=TOKENIZER, seed=seed, compare_every_n_batches=0
        )
        with guidance.step(net, batch) as step:
            logits = net(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            step.guided(logits.sum())
        handle.remove()
        ((ids, mask),) = seen
        for row, one_mask, answer in zip(ids, mask, logits, strict=True):
            alone = row[one_mask != 0][None]
            assert torch.allclose(net(input_ids=alone).logits[0], answer, atol=1e-12)


def test_a_step_that_pools_by_the_mask_as_it_was_is_refused():
    net = bert()
    guidance = lrptrain.Guidance("swap", swap="length", model="bert")
    batch = texts()
    mask = batch["attention_mask"]
    with guidance.step(net, batch) as step:
        hidden = net.bert(batch["input_ids"], mask).last_hidden_state
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        loss = F.cross_entropy(net.classifier(pooled), batch["labels"])
        with pytest.raises(
            ValueError, match="BertModel gives back no logits of classes, and the step continues by the"
        ):
            step.guided(loss)


def test_no_text_becomes_longer_than_the_model_can_read():
    """The tokenizer would take 40 tokens, the model has positions for as many as the batch is wide."""
    batch = texts()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=batch["input_ids"].shape[1],
    )  # fmt: skip
    net = BertForSequenceClassification(config)
    guidance = lrptrain.Guidance("swap", swap="numbers", on_error="raise", tokenizer=TOKENIZER)
    for _ in range(20):
        with guidance.step(net, batch) as step:
            step.guided(net(**batch).loss).backward()


class WithTokenizer(torch.utils.data.Dataset):
    """A stranger's dataset, which knows its tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.rows = rows_of(texts())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.rows[index]


def test_the_tokenizer_is_looked_for_where_the_monitor_looks(tmp_path):
    class Validated(Module):
        def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
            pass

    guidance = RelevanceGuidance("swap", swap="punctuation", on_error="raise")
    trainer = quiet_trainer(tmp_path, guidance)
    loader = DataLoader(WithTokenizer(TOKENIZER), batch_size=6)
    trainer.fit(Validated(bert(), tokenizer=None), loader, loader)
    assert guidance.guidance.values["guidance/swapped"] == 6
    arguments = quiet_arguments(tmp_path, max_steps=1, per_device_train_batch_size=6)
    collator = DataCollatorWithPadding(TOKENIZER)
    by_collator = Trainer(bert(), arguments, train_dataset=rows_of(texts()), data_collator=collator)
    guided = lrptrain.guide(by_collator, "swap", swap="punctuation", on_error="raise")
    by_collator.train()
    assert guided.values["guidance/swapped"] == 6


def test_a_length_loads_no_tokenizer():
    """One whose name is saved, and that nobody can load."""
    net = bert()
    net.hparams = {"tokenizer_name": "nowhere/nothing"}  # type: ignore[assignment]
    guidance = lrptrain.Guidance("swap", swap="length", on_error="raise")
    batch = texts()
    with guidance.step(net, batch) as step:
        step.guided(net(**batch).loss)
    assert guidance.values["guidance/swapped"] == 6


def test_consistency_compares_texts_with_rewritten_ones():
    net = bert()
    guidance = lrptrain.Guidance("consistency", 1.0, swap="length", on_error="raise", compare_every_n_batches=1)
    batch = texts()
    with guidance.step(net, batch) as step:
        loss = step.guided(net(**batch).loss)
    loss.backward()
    generator = torch.Generator().manual_seed(hash((0, 0, 0)) % 2**63)
    labels = batch.pop("labels")
    plain = bert()
    logits = plain(**batch).logits
    others = plain(**rewritten("length", batch, generator)).logits
    divergence = F.kl_div(others.log_softmax(1), logits.log_softmax(1), log_target=True, reduction="batchmean")
    expected = F.cross_entropy(logits, labels) + divergence
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    # Of a model of random weights; the distance is the total variation between both.
    distance = (logits.softmax(1) - others.softmax(1)).abs().sum(1).mean() / 2
    assert guidance.values["guidance/swap_distance"] == pytest.approx(float(distance.detach()), rel=1e-9)


def test_the_distance_is_that_of_the_users_texts_where_the_step_saw_others():
    net = bert()
    guidance = lrptrain.Guidance("swap", swap="length", on_error="raise", compare_every_n_batches=1)
    batch = texts()
    with guidance.step(net, batch) as step:
        step.guided(net(**batch).loss)
    generator = torch.Generator().manual_seed(hash((0, 0, 0)) % 2**63)
    del batch["labels"]
    before, after = (net(**each).logits.softmax(1) for each in (batch, rewritten("length", batch, generator)))
    distance = float((before - after).abs().sum(1).mean().detach() / 2)
    assert distance > 1e-4
    assert guidance.values["guidance/swap_distance"] == pytest.approx(distance, rel=1e-9)


def test_what_cannot_be_rewritten_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(ValueError, match="swap='punctuation' reads the texts: pass tokenizer="):
        by_lightning(bert(), {"loss": "swap", "swap": "punctuation"}, tmp_path, tokenizer=None)
    images = {"image": torch.ones(4, 3, 8, 8), "label": torch.zeros(4, dtype=torch.long)}
    guidance = lrptrain.Guidance("swap", swap="length")
    with pytest.raises(ValueError, match="swap='length' is one of texts, and the batch has"):
        guidance.step(torch.nn.Flatten(), images)
    with pytest.raises(ValueError, match="swap='colour' is one of images, and the batch has"):
        lrptrain.Guidance("swap", swap="colour").step(bert(), texts())


def test_a_run_goes_on_with_its_tokenizer(tmp_path):
    """What a checkpoint holds is no tokenizer: a resumed run looks for it again."""
    options: dict[str, Any] = {"loss": "swap", "swap": "punctuation", "on_error": "raise"}
    first = by_step(bert(), options, tmp_path)
    net = bert()
    guidance = lrptrain.Guidance(**options, tokenizer=TOKENIZER)
    guidance.load_state_dict(first.state_dict())
    batch = texts()
    with guidance.step(net, batch) as step:
        step.guided(net(**batch).loss)
    assert guidance.values["guidance/swapped"] == 6
