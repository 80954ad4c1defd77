"""The Trainer of transformers: its columns, collators, evaluations, checkpoints and logs under guidance."""

import json
from typing import Any

import pytest
import torch
from guided import annotated_data, weights
from guided_loops import Labelled, hugging_face_trainer
from hugging_face import quiet_arguments
from setting import vit
from test_guidance_gradients import assert_close
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    DataCollatorWithPadding,
    Trainer,
)

import lrptrain
from lrptrain.guidance.transformers_trainer import AnnotationCollator


def texts(samples=12):
    """Texts of several lengths, whose second token is the evidence."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(samples):
        length = 4 + index % 3
        rationale = [0] * length
        rationale[1] = 1
        ids = torch.randint(5, 60, (length,), generator=generator).tolist()
        row = {"input_ids": ids, "attention_mask": [1] * length, "labels": index % 2}
        rows.append({**row, "rationale": rationale, "sample_id": f"text {index}"})
    return rows


def collator(side="right"):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(59))]
    return DataCollatorWithPadding(BertTokenizer(vocab={name: i for i, name in enumerate(names)}, padding_side=side))


@pytest.mark.parametrize("side", ["left", "right"])
def test_rationales_are_padded_like_their_texts(side):
    batch = AnnotationCollator(collator(side))(texts(3))
    assert batch["sample_id"] == ["text 0", "text 1", "text 2"]
    expected = {"left": [[255, 255, 0, 1], [255, 0, 1, 0]], "right": [[0, 1, 0, 0, 255, 255], [0, 1, 0, 0, 0, 255]]}
    for row, start in zip(batch["rationale"].tolist(), expected[side], strict=False):
        assert row[: len(start)] == start


def test_a_rationale_of_another_length_costs_its_sample():
    rows = texts(3)
    rows[1]["rationale"] = rows[1]["rationale"][:-1]
    with pytest.warns(UserWarning, match="sample text 1: it has 4 values, and its text 6 tokens with padding"):
        batch = AnnotationCollator(collator())(rows)
    assert batch["rationale"][1].tolist() == [255] * 6
    assert (batch["rationale"][0] == 1).any()


@pytest.mark.parametrize("rationale", [[(0, 5)], ["word0"]])
def test_characters_and_words_mark_their_tokens(rationale):
    rows = [
        {
            **{name: x for name, x in row.items() if name != "rationale"},
            "rationale": rationale,
            "offset_mapping": [[6 * i, 6 * i + 5] for i in range(len(row["input_ids"]))],
            "text": " ".join(f"word{i}" for i in range(len(row["input_ids"]))),
        }
        for row in texts(3)
    ]
    batch = AnnotationCollator(collator("left"))(rows)
    assert batch["rationale"].tolist()[0] == [255, 255, 1, 0, 0, 0]
    assert set(batch) == {"input_ids", "attention_mask", "labels", "sample_id", "rationale"}


def bert():
    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, **sizes))


def text_trainer(folder, model=None, kind=Trainer, **arguments):
    sizes = {"per_device_train_batch_size": 6, "num_train_epochs": 2, "log_level": "error", "logging_steps": 1}
    settings = quiet_arguments(folder, **{**sizes, **arguments})
    data = {"train_dataset": texts(), "eval_dataset": texts(), "data_collator": collator()}
    return kind(bert() if model is None else model, settings, **data)


def guided(trainer, **options):
    return lrptrain.guide(trainer, "rationale_kl", **{"on_error": "raise", **options})


def test_texts_are_guided_and_their_evaluation_is_as_ever(tmp_path):
    seen = []

    class Mine(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            seen.append((model.training, set(inputs)))
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    trainer = text_trainer(tmp_path, kind=Mine, eval_strategy="epoch")
    guidance = guided(trainer)
    trainer.train()
    # The user's own loss gets what it gets without guidance, in training steps and in evaluations.
    assert {training for training, _ in seen} == {True, False}
    assert all(names == {"input_ids", "attention_mask", "labels"} for _, names in seen)
    logs = [row for row in trainer.state.log_history if "loss" in row]
    assert all(row["guidance/samples"] == 6 for row in logs)
    assert not any("guidance/samples" in row for row in trainer.state.log_history if "eval_loss" in row)
    assert guidance.failures == guidance.skipped == guidance.left_out == 0
    assert "forward" not in vars(trainer.model)


def test_a_resumed_run_is_the_run(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2}
    whole = text_trainer(tmp_path, **saving)
    first = guided(whole)
    whole.train()
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["RelevanceGuidance"]["attributes"]["worked"]
    resumed = text_trainer(tmp_path, **saving)
    second = guided(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_close(weights(resumed.model), weights(whole.model), 0.0)
    assert second.state.strength.factor == first.state.strength.factor
    assert second.state.strength.factor is not None


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["bf16", "peft"])
def test_half_precision_and_adapters(kind, tmp_path):
    model = bert()
    if kind == "peft":
        from peft import LoraConfig, TaskType, get_peft_model

        model = get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_CLS, target_modules=["query", "value"], r=2))
    before = weights(model)
    trainer = text_trainer(tmp_path, model, bf16=kind == "bf16", num_train_epochs=1)
    guidance = guided(trainer)
    trainer.train()
    assert guidance.failures == guidance.skipped == 0
    assert guidance.values["guidance/total"] > 0
    after = weights(model)
    changed = {name for name, x in after.items() if not torch.equal(x, before[name])}
    assert changed == {name for name, x in model.named_parameters() if x.requires_grad and name in changed}
    assert changed


def test_where_the_loss_is_over_all_labels_the_guidance_is_a_mean_over_batches(tmp_path):
    """A model that takes `num_items_in_batch`, of which the Trainer accumulates sums."""

    class Summed(Labelled):
        def forward(self, pixel_values, labels=None, num_items_in_batch=None, **kwargs):
            logits = self.net(pixel_values)
            total = nn.functional.cross_entropy(logits, labels, reduction="sum")
            return {"loss": total / (num_items_in_batch or len(labels)), "logits": logits}

    columns, outcomes = annotated_data(12), []
    for accumulate in (1, 2):
        net = vit().double()
        sizes = {"per_device_train_batch_size": 12 // accumulate, "gradient_accumulation_steps": accumulate}
        trainer = hugging_face_trainer(Summed(net), columns, tmp_path, **sizes)
        assert trainer.model_accepts_loss_kwargs
        lrptrain.guide(trainer, "energy", weight=0.5, on_error="raise")
        trainer.train()
        outcomes.append(weights(net))
    assert_close(*outcomes)


def test_one_guidance_per_trainer(tmp_path):
    trainer = text_trainer(tmp_path)
    guided(trainer)
    with pytest.raises(ValueError, match="one guidance per trainer: combine losses"):
        guided(trainer)
