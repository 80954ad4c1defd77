"""What a trained model reads, in one call: cues with their effects, faults first."""

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.logits import class_probabilities
from lrptrain.cues import plan
from lrptrain.cues.measure import Measure
from lrptrain.cues.search import Judged, Node, Search
from lrptrain.cues.texts import Language
from lrptrain.findings import ExplainedSample
from lrptrain.findings.sentences import counted, listed
from lrptrain.monitor.confidence import sharpened, sharpness
from lrptrain.batch.call import model_output
from lrptrain.cues.text_form import text_form
from lrptrain.monitor.draw import at_rest
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.isolation import explain_usable
from lrptrain.monitor.loop_monitor import Monitor
from lrptrain.render import join_words, to_pixels
from lrptrain.render.png import png_address
from lrptrain.terminal import fitted
from lrptrain.trainers.naming import class_names_or_numbers, find_tokenizer, find_tokens
from lrptrain.trainers.processes import rank_and_size

MEND_FAULT = 'Mend: RelevanceGuidance("swap", swap=report.faults), or other data: docs/how-to/inspect.md.'
MEND_OPEN = "If it is no evidence: swap it in training, or other data: docs/how-to/inspect.md."
FEWEST_ANSWERS = 2
ALONE = "It does not rely on these alone"
"""Another cue may say the same."""


@dataclass(frozen=True)
class Inspection:
    """What a model reads of some samples.

    `print` it, or let a notebook show it; `report.judged` has every cue that was tested.

    Attributes:
        judged: All cues that were tested; what is named comes first, by the lower end of its effect.
        samples: The ids of the samples.
        answers: What the model answers to each, as a class.
        class_names: The names of the classes.
        accuracy: The share of the labelled samples that is answered rightly, in [0, 1]; nan without labels.
        untested: What was not tested, and why, a line each.
        passes: How many forward passes each sample took, beside its map.
    """

    judged: list[Judged]
    samples: list[int | str]
    answers: np.ndarray
    class_names: Sequence[str]
    accuracy: float
    untested: list[str]
    passes: float
    _proofs: dict[int, str] = field(default_factory=dict, repr=False)

    @property
    def faults(self) -> list[Judged]:
        """What is named, and lies outside of what people marked."""
        return [each for each in self.judged if each.named and each.is_fault]

    @property
    def reads(self) -> list[Judged]:
        """What is named, and nobody has spoken of: a person judges whether it is evidence."""
        return [each for each in self.judged if each.named and not each.is_fault]

    def __str__(self) -> str:
        parts = [self._head(), *(self._paragraph(each) for each in (*self.faults, *self.reads)), *self._others()]
        return "\n".join(fitted(part) for part in parts)

    def _repr_html_(self) -> str:
        blocks = []
        for each in (*self.faults, *self.reads):
            color = "#b3382c" if each.is_fault else "#1f5f8b"
            lines = "".join(f"<div>{html.escape(line)}</div>" for line in self._lines(each)[1:])
            blocks.append(
                f'<div style="border-left:4px solid {color};padding:6px 10px;margin:0 0 8px">'
                f'<div style="color:{color};font-weight:600">{html.escape(self._lines(each)[0])}</div>'
                f"{lines}{self._proofs.get(id(each), '')}</div>"
            )
        rest = "".join(f"<p>{html.escape(line)}</p>" for line in self._others())
        style = "font:14px/1.5 system-ui,sans-serif;color:#111;background:#fff;max-width:60em"
        return f'<div style="{style}"><p>{html.escape(self._head())}</p>{"".join(blocks)}{rest}</div>'

    def show(self) -> None:
        """Show it in a notebook; elsewhere print it."""
        try:
            from IPython.display import HTML, display
        except ImportError:
            print(self)
            return
        display(HTML(self._repr_html_()))

    def save(self, path: str | Path) -> Path:
        """Write it as a page, or its values where the path ends in `.json`."""
        path = Path(path)
        if path.suffix == ".json":
            path.write_text(json.dumps(self.to_dict(), indent=2))
        else:
            page = f'<!doctype html><meta charset="utf-8"><title>What the model reads</title>{self._repr_html_()}'
            path.write_text(page, encoding="utf-8")
        return path

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "samples": len(self.samples),
            "accuracy": None if math.isnan(self.accuracy) else self.accuracy,
            "classes": list(self.class_names),
            "cues": [{**each.to_dict(), "by_class": self.by_class(each)} for each in self.judged],
            "untested": self.untested,
        }

    def by_class(self, judged: Judged) -> dict[str, float]:
        """Return the mean effect of a cue on the samples of each answer."""
        found = {}
        for answer in np.unique(self.answers):
            values = judged.values[self.answers == answer]
            if not np.isnan(values).all():
                found[str(self.class_names[answer])] = float(np.nanmean(values))
        return found

    def _head(self) -> str:
        right = "" if math.isnan(self.accuracy) else f", {self.accuracy:.0%} of them answered rightly"
        found = f"{counted(len(self.faults), 'shortcut')}, {counted(len(self.reads), 'other cue')}"
        return f"What the model reads, in {len(self.samples)} samples{right}: {found}."

    def _paragraph(self, judged: Judged) -> str:
        return "\n".join(fitted(line if not i else f"  {line}") for i, line in enumerate(self._lines(judged)))

    def _lines(self, judged: Judged) -> list[str]:
        verb = "SHORTCUT: the model relies on" if judged.is_fault else "The model reads"
        effect = judged.effect
        low, high = _points(effect.low), _points(effect.high)
        lines = [
            f"{verb} {judged.cue.name}.",
            f"Effect {_points(effect.mean)} points ({low} to {high}), of {effect.samples} samples.",
        ]
        if judged.share is not None and judged.within:
            lines.append(f"That is {min(judged.share, 1.0):.0%} of the effect of {judged.within}.")
        by_class = self.by_class(judged)
        most = max(by_class, key=lambda name: by_class[name])
        if len(by_class) > 2 and by_class[most] > 2 * effect.mean:
            lines.append(f"Most of all in answers {most!r}: {_points(by_class[most])} points.")
        return [*lines, MEND_FAULT if judged.is_fault else MEND_OPEN]

    def _others(self) -> list[str]:
        lines = []
        for verdict, words in (("not sure", "Not sure whether it relies on"), ("does not rely", ALONE)):
            names = [*dict.fromkeys(each.cue.name for each in self.judged if each.verdict == verdict)]
            if names:
                lines.append(f"{words}: {listed(names)}.")
        return [*lines, *(f"Not tested: {line}." for line in self.untested)]


def _points(share: float) -> str:
    return f"{100 * share:.0f}"


def inspect(
    model: nn.Module,
    samples: Any,
    *,
    step: Callable[[nn.Module, Any], object] | None = None,
    forward_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    **options: Any,
) -> Inspection:
    """Find out what a trained model reads: `print(lrptrain.inspect(model, loader))`.

    A cue (a place, a mark, colours, words, a phrase, the length) is exchanged between samples. Its effect is by how
    much the answer's probability is higher with the cue of a sample of the same answer than with that of another. What
    lies outside of annotations is a fault; of all else a person judges whether it is evidence.

    Args:
        model: The model, as for `lrptrain.Monitor`; it stays as it is.
        samples: The data: a DataLoader, a Dataset or an iterable of batches, as for `lrptrain.Monitor`; best ones that
            the model was not trained on.
        step: See `lrptrain.Monitor`.
        forward_context: See `lrptrain.Monitor`.
        **options: Those of `lrptrain.Monitor` that say how samples are read and named (`max_samples`, `batch_adapter`,
            `explain`, `task`, `class_names`, `tokenizer`, `mean`, `std`, `method`, `batch_size`, `seed`), and
            `min_effect` and `confidence`.

    Raises:
        TypeError: If there is no such option.
        ValueError: If model or data cannot work, with what to change; or fewer than two answers are given.
    """
    if rank_and_size()[1] > 1:
        raise ValueError("inspect runs in one process: call it in one, after training")
    monitor = Monitor(
        model,
        samples,
        step=step,
        forward_context=forward_context,
        **{"kind": "inspect", "progress_bar": False, "targets": ("predicted",), **options},
    )
    context = monitor._context(0, 0)
    core = monitor.core
    drawn: list[Sample] = core.reader.finish(core.failures.note)
    with at_rest(context.model):
        evaluator: Evaluator = core._evaluator(context)
        explained, problems = explain_usable(evaluator, drawn)
        report = _inspected(monitor, explained, evaluator, context.name_sources)
    left_out = {**core.reader.sample.left_out, **problems}
    report.untested.extend(f"the sample {sample_id}: {problem}" for sample_id, problem in left_out.items())
    return report


def _inspected(
    monitor: Monitor, explained: Sequence[ExplainedSample], evaluator: Evaluator, sources: Sequence[Any]
) -> Inspection:
    config = monitor.config
    samples = [each.sample for each in explained]
    before = np.stack([each.probabilities for each in explained])
    answers = before.argmax(1)
    labels = np.array([sample.label for sample in samples])
    if len(np.unique(answers)) < FEWEST_ANSWERS:
        raise ValueError(
            f"the model gives one answer to all {len(samples)} samples, so that nothing can be exchanged: train it, or "
            "give samples of several classes"
        )
    power = sharpness(before, labels)

    def probabilities(batch: Mapping[str, Any]) -> Float[np.ndarray, "batch classes"]:
        with evaluator.forward_context():
            return sharpened(class_probabilities(model_output(evaluator.model, batch)).cpu().numpy(), power)

    measure = Measure(samples, answers, probabilities, evaluator.device, config.batch_size, config.seed)
    names = class_names_or_numbers(config.class_names, sources, before.shape[1])
    tokenizer = find_tokenizer(config.tokenizer, sources)
    name_tokens = find_tokens(config.tokenizer, sources)
    language = Language(name_tokens, text_form(tokenizer, evaluator.model), tokenizer is not None)
    roots, untested = _roots(explained, answers, language, config.seed)
    search = Search(measure, config.min_effect, config.confidence)
    judged = search.run(roots)
    labelled = labels >= 0
    proofs = {
        id(each): _proof(measure, each, names, name_tokens, config.mean, config.std) for each in judged if each.named
    }
    return Inspection(
        judged=judged,
        samples=[sample.sample_id for sample in samples],
        answers=answers,
        class_names=names,
        accuracy=float((answers == labels)[labelled].mean()) if labelled.any() else math.nan,
        untested=untested,
        passes=measure.passes / len(samples),
        _proofs=proofs,
    )


def _roots(
    explained: Sequence[ExplainedSample], answers: np.ndarray, language: Language, seed: int
) -> tuple[list[Node], list[str]]:
    """Return what is tested of some samples, and what is not, with the reason."""
    samples = [each.sample for each in explained]
    roots = plan.of_other_inputs(samples)
    if all(each.content_ids is not None for each in explained):
        unnamed = "" if language.is_named else "families of words, for nothing names the tokens: pass tokenizer="
        return [*plan.of_texts(samples, answers, language, seed), *roots], [unnamed] if unnamed else []
    maps = [each.maps[max(each.maps)] for each in explained]  # for the predicted class, where there is such a map
    grids = {each.grid for each in explained}
    shapes = {tuple(x.shape) for sample in samples for name, x in sample.tensors.items() if name in IMAGES}
    if None in grids or len(grids) > 1 or len(shapes) > 1:
        what = "images of several sizes" if None not in grids else "an input that is neither an image nor a text"
        return roots, [f"{what}, between which nothing can be exchanged place by place"]
    (grid,) = grids
    assert grid is not None
    if len(next(iter(shapes))) != 3:
        return roots, ["what is no image of channels, height and width"]
    return [*plan.of_images(samples, maps, grid, answers, seed), *roots], []


def _proof(
    measure: Measure,
    judged: Judged,
    class_names: Sequence[str],
    name_tokens: Callable[[list[int]], list[str]],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> str:
    """Return the sample that shows an effect best as HTML: as it is, and with the cue of either donor."""
    row = int(np.nanargmax(judged.values))
    answer = measure.answers[row]
    variants = measure.example(judged.cue, row, judged.rows)
    captions = ("as it is", f"with that of another {class_names[answer]!r}", "with that of another answer")
    cells = []
    for caption, batch in zip(captions, variants, strict=True):
        p = measure.probability(batch, answer)
        cells.append(f"<div>{_shown(batch, name_tokens, mean, std)}<div>{html.escape(caption)}: {p:.2f}</div></div>")
    head = f"The probability of {class_names[answer]!r}, of sample {measure.samples[row].sample_id}:"
    return (
        f'<div style="font-size:12px">{html.escape(head)}</div>'
        f'<div style="display:flex;gap:12px;font-size:12px;margin:4px 0">{"".join(cells)}</div>'
    )


def _shown(
    batch: Mapping[str, Any],
    name_tokens: Callable[[list[int]], list[str]],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> str:
    image = next((batch[name][0] for name in IMAGES if name in batch), None)
    if image is not None and image.ndim == 3 and len(image) in (1, 3):
        address = png_address(to_pixels(image.float().cpu(), mean=mean, std=std))
        return f'<img src="{address}" style="width:128px;image-rendering:pixelated" alt="">'
    if "input_ids" in batch:
        ids = batch["input_ids"][0]
        attended = ids[batch["attention_mask"][0] != 0] if "attention_mask" in batch else ids
        tokens = name_tokens(attended.tolist())
        words = join_words(tokens, [True] * len(tokens), [False] * len(tokens))
        return html.escape("".join(f"{' ' if word.space else ''}{word.text}" for word in words))
    return ""
