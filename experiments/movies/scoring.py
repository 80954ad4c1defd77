"""Score one method on the chosen test documents."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import lrptrain
from lrptrain.batch.annotations import IGNORED, TokenAnnotation, rationale_to_tokens
from lrptrain.batch.content import end_tokens
from lrptrain.data import EraserDocuments
from lrptrain.data.texts import collate_texts
from lrptrain.metrics import energy_pointing_game, iou_f1, localization_auprc, token_f1_at_k
from lrptrain.metrics.faithfulness import comprehensiveness, sufficiency, text_probability

KS = tuple(range(10, 81, 10))
SPAN_TOKENS = 80
BATCH = 4


@dataclass(frozen=True)
class Documents:
    """A batch of test documents and what a model says about them.

    Attributes:
        inputs: Of the model.
        annotation: The rationale; special tokens are ignored.
        with_specials: The same, with the special tokens in the race, as tokens that are no evidence.
        content: Tokens of the document itself.
        target: The explained class: the predicted one.
        probability: Of that class, of what is kept of the documents.
        full: Of that class, of the whole documents.
        rounding: How far bf16 moves that probability.
    """

    inputs: dict[str, Tensor]
    annotation: TokenAnnotation
    with_specials: TokenAnnotation
    content: Tensor
    target: Tensor
    probability: Callable[[Tensor], Tensor]
    full: Tensor
    rounding: Tensor


def chosen_documents(data: EraserDocuments, count: int) -> list[int]:
    """Test documents drawn at random, the same for all models and methods."""
    drawn = np.random.default_rng(0).permutation(len(data.splits["test"]))[:count]
    return [int(index) for index in drawn]


def prepare(module: torch.nn.Module, data: EraserDocuments, numbers: Sequence[int]) -> list[Documents]:
    """The documents in batches, with the model's predictions."""
    examples = [(number, data.splits["test"][number]) for number in numbers]
    parts = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    return [_documents(module, collate_texts(part, data.tokenizer, data.max_length)) for part in parts]


def _documents(module: torch.nn.Module, batch: dict[str, Tensor]) -> Documents:
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    attended = inputs["attention_mask"] != 0
    specials = end_tokens(attended)
    rationale = batch["rationale"]
    present = (rationale != IGNORED).any(1, keepdim=True)

    def predict(**inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return module(**inputs)

    with torch.no_grad():
        logits = module(**inputs)
    target = logits.argmax(1)
    probability = text_probability(predict, inputs, target)
    full = probability(attended)
    return Documents(
        inputs,
        rationale_to_tokens(rationale, attended),
        rationale_to_tokens(torch.where(specials & present, 0, rationale), attended),
        attended & ~specials,
        target,
        probability,
        full,
        (full - logits.softmax(1).amax(1)).abs(),
    )


def measure(
    module: torch.nn.Module, batches: Sequence[Documents], method: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Every measure per document, and how long the maps took; or why the method cannot serve the model."""
    columns: dict[str, list[float]] = {}
    seconds = 0.0
    for batch in batches:
        started = time.monotonic()
        try:
            found = lrptrain.attribute(module, batch.inputs, batch.target, method, **options)
        except (lrptrain.UnsupportedMethodError, lrptrain.UnsupportedModelError) as error:
            return {"unsupported": str(error)}
        seconds += time.monotonic() - started
        for name, values in _measures(found.scores.detach().double(), batch).items():
            columns.setdefault(name, []).extend(round(float(value), 5) for value in values)
    return {"seconds": round(seconds, 1), "documents": columns}


def _measures(scores: Tensor, batch: Documents) -> dict[str, Tensor]:
    f1 = {f"F1 at {k}": token_f1_at_k(scores, batch.annotation, k) for k in KS}
    with_specials = torch.stack([token_f1_at_k(scores, batch.with_specials, k) for k in KS])
    return {
        **f1,
        "mean F1": torch.stack(list(f1.values())).mean(0),
        "mean F1 with specials": with_specials.mean(0),
        "AUPRC": localization_auprc(scores, batch.annotation),
        "EPG": energy_pointing_game(scores, batch.annotation),
        "chance": batch.annotation.chance,
        "IOU-F1": iou_f1(scores, batch.annotation, SPAN_TOKENS),
        "comprehensiveness": comprehensiveness(batch.probability, scores, batch.content, full=batch.full),
        "sufficiency": sufficiency(batch.probability, scores, batch.content, full=batch.full),
    }


def cut_off(data: EraserDocuments, numbers: Sequence[int]) -> dict[str, float]:
    """How much of the rationale of some test documents the model cannot see."""
    examples = [(number, data.splits["test"][number]) for number in numbers]
    whole, seen = (
        collate_texts(examples, data.tokenizer, length)["rationale"] == 1 for length in (10**5, data.max_length)
    )
    pieces = [
        len(data.tokenizer(example.text, truncation=True, max_length=10**5)["input_ids"]) for _, example in examples
    ]
    return {
        "documents": len(examples),
        "rationale_tokens_cut_off": 1 - float(seen.sum() / whole.sum()),
        "documents_cut": sum(count > data.max_length for count in pieces) / len(pieces),
        "documents_without_visible_rationale": int((~seen.any(1)).sum()),
    }
