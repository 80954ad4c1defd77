"""Relevance as it is shown: its samples with their pictures or words, and what is said above them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lrptrain.render.colors import blend
from lrptrain.render.image import enlarge, finite_map
from lrptrain.render.pair import beside
from lrptrain.render.signals import video_frames, waveform
from lrptrain.render.text import word_scores
from lrptrain.render.view import SampleView, display, save_views, takes_color, views_html, views_text
from lrptrain.render.words import scored_tokens

if TYPE_CHECKING:
    from lrptrain.relevance.types import Relevance

__all__ = [
    "described",
    "display",
    "not_shown",
    "plain",
    "save_views",
    "takes_color",
    "views",
    "views_html",
    "views_text",
]

_CHANNELS = (1, 3)
_LISTED = 8  # targets, in a short description


def described(relevance: "Relevance") -> str:
    """Return a map in one line: its size, its target and its method."""
    samples, tokens = relevance.scores.shape
    grid = "" if relevance.grid is None else f" in a grid of {' x '.join(map(str, relevance.grid))}"
    target = relevance.target.tolist()
    listed = str(target) if len(target) <= _LISTED else f"[{', '.join(map(str, target[:_LISTED]))}, ...]"
    return f"Relevance({samples} x {tokens} tokens{grid}, target={listed}, method={relevance.method!r})"


def plain(relevance: "Relevance", sample_views: Sequence[SampleView]) -> dict[str, Any]:
    """Return maps as plain values for JSON; null for nan."""
    samples = []
    for i, view in enumerate(sample_views):
        scores = relevance.scores[i].detach().double().cpu()
        values = [x if finite else None for x, finite in zip(scores.tolist(), scores.isfinite().tolist(), strict=True)]
        sample = {"title": view.title, "target": int(relevance.target[i]), "scores": values}
        if view.pixels is None:
            found = word_scores(view.tokens, view.scores, view.scored)
            sample["words"] = [{"text": text, "relevance": x} for text, x in found]
        samples.append(sample)
    grid = None if relevance.grid is None else list(relevance.grid)
    return {"method": relevance.method, "grid": grid, "samples": samples}


def not_shown(relevance: "Relevance", most: int) -> str:
    """Return a line about the samples that are left out, and what is missing; empty where all is shown."""
    count = len(relevance.scores)
    notes = [f"{count - most} more samples: show(max_samples={count})."] if count > most else []
    batch = relevance.batch
    if batch is not None and batch.token_ids is None and batch.tensor is None and relevance.grid is not None:
        notes.append("The images are gone: show(images) shows them beside the maps.")
    return " ".join(notes)


def views(
    relevance: "Relevance",
    inputs: Any = None,
    tokenizer: Any = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
    multi_label: bool | None = None,
    most: int = 16,
) -> list[SampleView]:
    """Return the first samples, as they are shown; arguments and errors as for `Relevance.show`."""
    if not isinstance(most, (int, np.integer)) or most < 1:
        raise ValueError(f"max_samples={most!r}: a number of samples from 1 on is shown")
    explained = _explained(relevance, inputs)
    answers, kind = _answers(relevance, multi_label)
    sample_views = []
    for i in range(min(most, len(relevance.scores))):
        title = _title(relevance, i, answers, kind, _names(relevance, class_names))
        scores = finite_map(relevance.scores[i])
        if _is_text(relevance, explained):
            sample_views.append(_text_view(relevance, i, title, scores, tokenizer, explained))
        else:
            picture = _picture(relevance, i, scores, None if explained is None else explained[i], mean, std)
            sample_views.append(SampleView(title, scores, picture))
    return sample_views


def _explained(relevance: "Relevance", inputs: Any) -> Tensor | None:
    """Return the explained input, as the caller passes it or as it is still there; None where it is gone."""
    batch = relevance.batch
    if inputs is None:
        return None if batch is None else batch.tensor if batch.token_ids is None else batch.token_ids
    tensor = _as_tensor(inputs)
    shape = None if batch is None else batch.shape
    # A single image may be passed as the user has it, [channels, height, width], without an axis for the batch.
    if shape is not None and tensor.ndim == len(shape) - 1 and len(relevance.scores) == 1:
        tensor = tensor[None]
    if len(tensor) != len(relevance.scores) or (shape is not None and tuple(tensor.shape) != shape):
        expected = len(relevance.scores) if shape is None else list(shape)
        raise ValueError(
            f"the inputs {list(tensor.shape)} are not what was explained ({expected}): pass what the model was given"
        )
    return tensor


def _as_tensor(inputs: Any) -> Tensor:
    """Return inputs as a tensor; a list of tensors is stacked."""
    kind = type(inputs).__name__
    if isinstance(inputs, list | tuple) and inputs:
        kind = f"{kind} of {type(inputs[0]).__name__}"
    try:
        if isinstance(inputs, list | tuple) and all(isinstance(each, Tensor) for each in inputs):
            return torch.stack(list(inputs))
        return torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        refused = ValueError if "equal size" in str(error) else TypeError
        raise refused(
            f"inputs of type {kind} make no tensor: pass the images or token ids as the model was given them"
        ) from error


def _is_text(relevance: "Relevance", explained: Tensor | None) -> bool:
    if relevance.grid is not None:
        return False
    # A waveform, of which a token is many samples, is a strip; anything else without a grid is a row of tokens.
    if explained is None or explained.ndim != 2 or not explained.is_floating_point():
        return True
    return explained.shape[1] <= relevance.scores.shape[1]


def _names(relevance: "Relevance", class_names: Sequence[str] | Mapping[int, str] | None) -> dict[int, str]:
    """Return the names of classes by number, as the caller or the model's configuration says."""
    classes = relevance.logits.shape[1]
    if class_names is not None:
        if isinstance(class_names, str):
            raise ValueError(f"class_names={class_names!r} is one text: name all classes in a list")
        if isinstance(class_names, Mapping):  # as `id2label`
            return {int(number): str(name) for number, name in class_names.items()}
        if len(class_names) != classes:
            raise ValueError(
                f"class_names has {len(class_names)} names for {classes} logits: name all classes, in order"
            )
        return dict(enumerate(map(str, class_names)))
    names = {} if relevance.batch is None else relevance.batch.class_names
    # Names that begin at 1 are as many as the logits, and each would be that of the class before.
    return names if set(names) == set(range(classes)) else {}


def _answers(relevance: "Relevance", multi_label: bool | None) -> tuple[Float[Tensor, "batch classes"], str]:
    """Return what the model says of each class, and what that is.

    Of "classes", which exclude each other, it is probabilities that sum to 1; of "labels" a probability each; "logits"
    may belong to either of them, and "numbers" to neither.
    """
    problem = None if relevance.batch is None else relevance.batch.problem
    logits = relevance.logits.detach().double().cpu()
    if multi_label or (multi_label is None and problem == "multi_label_classification"):
        return logits.sigmoid(), "labels"
    if logits.shape[1] == 1 or (multi_label is None and problem == "regression"):
        return logits, "numbers"
    # A model that ends in its own softmax; half precision rounds a sum of 1 by less than 1e-3.
    if (logits.sum(1) - 1).abs().max() < 1e-3 and (logits >= 0).all():
        return logits, "classes"
    # The weights look alike after training by cross-entropy and by binary cross-entropy: no probability is made up.
    if multi_label is None and problem is None:
        return logits, "logits"
    return logits.softmax(1), "classes"


def _title(
    relevance: "Relevance", i: int, answers: Float[Tensor, "batch classes"], kind: str, names: dict[int, str]
) -> str:
    """Return which sample it is, which class is explained, and what the model says of it, as `_answers` has it."""
    target = int(relevance.target[i])

    def named(index: int) -> str:
        return repr(names[index]) if index in names else f"class {index}"

    def answer(index: int) -> str:
        value = float(answers[i, index])
        return {"numbers": f"output {value:.3g}", "logits": f"logit {value:.2f}"}.get(kind, f"p = {value:.2f}")

    start = f"sample {i}: " if len(relevance.scores) > 1 else ""
    if kind == "numbers" and answers.shape[1] == 1:
        return f"{start}{answer(0)} ({relevance.method})"
    text = f"{start}target {named(target)}, {answer(target)}"
    if relevance.other is not None:
        text += f", against {named(int(relevance.other[i]))}"
    predicted = int(answers[i].argmax())
    # Of several labels each is an answer of its own: the most probable one is not "the" prediction.
    if kind == "classes" and predicted != target:
        text += f", predicted {named(predicted)}, {answer(predicted)}"
    elif kind == "logits" and predicted != target:
        text += f", largest {named(predicted)}, {answer(predicted)}"
    return f"{text} ({relevance.method})"


def _text_view(
    relevance: "Relevance", i: int, title: str, scores: np.ndarray, tokenizer: Any, explained: Tensor | None
) -> SampleView:
    """Return a text by its tokens' names; without a tokenizer, by their ids, or else their places."""
    padding = None if relevance.batch is None else relevance.batch.padding
    is_content = np.ones(len(scores), dtype=bool) if padding is None else padding[i].bool().cpu().numpy()
    if explained is None or explained.ndim != 2:
        return SampleView(title, scores[is_content], tokens=[f" {place}" for place in np.flatnonzero(is_content)])
    ids = explained[i].cpu().numpy()[is_content].tolist()
    tokenizer = tokenizer or (None if relevance.batch is None else relevance.batch.tokenizer)
    if tokenizer is None:
        # Where nothing names them, the ends are special, as in `lrptrain.batch`.
        ends = [0 < place < len(ids) - 1 for place in range(len(ids))]
        title = f"{title}; show(tokenizer=...) names the tokens"
        return SampleView(title, scores[is_content], tokens=[f" {number}" for number in ids], scored=ends)
    names = _token_names(tokenizer, ids)
    return SampleView(title, scores[is_content], tokens=names, scored=scored_by(tokenizer, ids, names))


def _token_names(tokenizer: Any, ids: list[int]) -> list[str]:
    """Return the names of tokens, by a tokenizer of transformers or of tokenizers."""
    if callable(convert := getattr(tokenizer, "convert_ids_to_tokens", None)):
        names = convert(ids)
    elif callable(name_of := getattr(tokenizer, "id_to_token", None)):
        names = [name_of(number) for number in ids]
    else:
        lacking = type(tokenizer).__name__
        raise TypeError(f"tokenizer= needs convert_ids_to_tokens or id_to_token, which {lacking} lacks")
    unnamed = next((number for number, name in zip(ids, names, strict=True) if name is None), None)
    if unnamed is not None:
        raise ValueError(f"the tokenizer has no token {unnamed}: pass the one that the text was cut by")
    return [str(name) for name in names]


def scored_by(tokenizer: Any, ids: Sequence[int], names: Sequence[str]) -> list[bool]:
    """Return whether each token is content: as the tokenizer knows its special ones, or else by their names."""
    # What stands for a word is content: an unknown word may well be what the model uses.
    special = set(getattr(tokenizer, "all_special_ids", ()))
    if not special:
        by_name: list[bool] = scored_tokens(names).tolist()
        return by_name
    placeholders = {getattr(tokenizer, name, None) for name in ("unk_token_id", "mask_token_id")}
    return [number not in special or number in placeholders for number in ids]


def _picture(
    relevance: "Relevance",
    i: int,
    scores: np.ndarray,
    sample: Tensor | None,
    mean: Sequence[float] | Tensor | None,
    std: Sequence[float] | Tensor | None,
) -> UInt8[np.ndarray, "height width 3"]:
    """Return the sample beside, above or below its map; the map alone where the sample is gone or of no known kind."""
    grid = relevance.grid
    if grid is None:
        assert sample is not None
        return waveform(sample.detach().cpu(), scores)
    heat = scores.reshape(grid)
    if len(grid) == 3:
        return _video(sample, heat, mean, std)
    if sample is not None and sample.ndim == 3 and sample.shape[0] not in _CHANNELS:
        sample = sample.permute(2, 0, 1)  # channels last
    if sample is not None and sample.ndim == 3 and sample.shape[0] in _CHANNELS:
        return beside(sample.detach().float(), heat, mean=mean, std=std)
    # Of a spectrogram or of patches in a row nothing tells which axis the rows of the grid are.
    return _map_alone(heat)


def _video(
    sample: Tensor | None, heat: np.ndarray, mean: Sequence[float] | Tensor | None, std: Sequence[float] | Tensor | None
) -> UInt8[np.ndarray, "height width 3"]:
    """Return the frames above their maps."""
    if sample is not None and sample.ndim == 4:
        # [frames, channels, height, width], or channels first.
        frames = sample if sample.shape[1] in _CHANNELS else sample.transpose(0, 1)
        if frames.shape[1] in _CHANNELS:
            frames = frames.detach().float().cpu()
            bare = video_frames(frames, None, mean=mean, std=std)
            return np.concatenate([bare, video_frames(frames, heat, mean=mean, std=std)])
    return np.concatenate([_map_alone(each, float(np.abs(heat).max())) for each in heat], axis=1)


def _map_alone(heat: np.ndarray, peak: float | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Return the colours of a map on white, its cells as squares."""
    largest = float(np.abs(heat).max()) if peak is None else peak
    ground = np.full((*heat.shape, 3), 255, dtype=np.uint8)
    return enlarge(blend(ground, heat / (largest or 1.0)))
