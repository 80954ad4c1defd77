"""What a trained model relies on, in one call: cues with their effects, shortcuts first."""

import html
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from lrptrain.batch import Sample
from lrptrain.cues.search import Judged
from lrptrain.findings import Finding, HasFindings, announce
from lrptrain.findings.sentences import beside_guessing, counted, headline
from lrptrain.monitor.config import INSPECTS
from lrptrain.monitor.draw import at_rest
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.loop_monitor import GUIDANCE, Monitor
from lrptrain.monitor.power import Power, lines_of
from lrptrain.monitor.proving import examples_of, with_proofs
from lrptrain.monitor.reporting import findings_of
from lrptrain.monitor.skill import guessing
from lrptrain.render.view import display
from lrptrain.terminal import fitted
from lrptrain.trainers.context import Names
from lrptrain.trainers.processes import rank_and_size

OTHER_TRAINERS = "The lines are for a loop of your own; under Lightning or Trainer: docs/how-to/guidance.md"
"""Said where nobody knows what trains the model."""


@dataclass(frozen=True)
class Inspection(HasFindings):
    """What a model relies on in some samples.

    `print` it, or let a notebook show it; `report["the border"]` is a finding by its printed name, and `report.judged`
    has every cue that was tested.

    Attributes:
        findings: Shortcuts, then what needs review, each by the lower bound of its effect; none of a model that is no
            better than guessing.
        judged: All cues that were tested; what is named comes first.
        samples: The number of samples.
        accuracy: The share of the labelled samples that is predicted correctly, in [0, 1]; nan without labels.
        guessing: The accuracy of the same predictions in a random order, in [0, 1]; nan without labels.
        power: What was tested, and whether that says anything.
        untested: What was not tested, and why, a line each.
        passes: How many forward passes each sample took, beside its map.
    """

    findings: Sequence[Finding]
    judged: Sequence[Judged]
    samples: int
    accuracy: float
    guessing: float
    power: Power
    untested: list[str] = field(default_factory=list)
    passes: float = 0.0

    def __str__(self) -> str:
        found = announce([*self.faults, *self.to_review])
        return "\n".join([fitted(self._head()), *found, *map(fitted, self._others())])

    def _repr_html_(self) -> str:
        blocks = [each._repr_html_() for each in (*self.faults, *self.to_review)]
        rest = "".join(f"<p>{html.escape(line)}</p>" for line in self._others())
        style = "font:14px/1.5 system-ui,sans-serif;color:#111;background:#fff;max-width:60em"
        return f'<div style="{style}"><p>{html.escape(self._head())}</p>{"".join(blocks)}{rest}</div>'

    def show(self) -> None:
        """Show it in a notebook; elsewhere print it."""
        display(self._repr_html_(), str(self))

    def save(self, path: str | Path) -> Path:
        """Write it as a page, or its values where the path ends in `.json`."""
        path = Path(path)
        if path.suffix == ".json":
            path.write_text(json.dumps(self.to_dict(), indent=2))
        else:
            page = f'<!doctype html><meta charset="utf-8"><title>What the model relies on</title>{self._repr_html_()}'
            path.write_text(page, encoding="utf-8")
        return path

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "samples": self.samples,
            "accuracy": None if math.isnan(self.accuracy) else self.accuracy,
            "guessing": None if math.isnan(self.guessing) else self.guessing,
            "says_nothing": "" if self.power.tells else self.power.text,
            "passes": self.passes,
            "untested": [*self.untested],
            "findings": [each.to_dict() for each in self.findings],
            "judged": [each.to_dict() for each in self.judged],
        }

    def _head(self) -> str:
        found = headline(self.findings, self.power.can_fault) if self.power.tells else self.power.text
        known = [counted(self.samples, "sample"), *beside_guessing(self.accuracy, self.guessing)]
        return f"{', '.join(known)}. {found}"

    def _others(self) -> list[str]:
        if not self.power.tells:
            return [f"Not tested: {line}." for line in self.untested]
        is_of_loop = any("lrptrain.Guidance(" in each.fix for each in self.findings)
        return [*lines_of(self.judged, self.untested), *([OTHER_TRAINERS] if is_of_loop else [])]


def inspect(
    model: nn.Module | Callable[..., Any],
    samples: Any,
    *,
    step: Callable[[nn.Module, Any], object] | None = None,
    forward_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    **options: Any,
) -> Inspection:
    """Find out what a trained model relies on: `print(lrptrain.inspect(model, loader))`.

    A cue (a place, a mark, colours, words, a phrase, the length) is swapped between samples. Its effect is how much
    more probable the answer is with the cue of a sample of that answer than with that of another. A cue outside of the
    annotations is a shortcut; any other needs your review.

    Examples:
        >>> import torch, lrptrain
        >>> labels = torch.arange(64) % 2
        >>> images = 0.1 * torch.randn(64, 1, 8, 8)
        >>> images[:, :, :2, :2] += labels[:, None, None, None]  # the top left corner gives the class away
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> _ = torch.nn.init.zeros_(model[1].weight), torch.nn.init.zeros_(model[1].bias)
        >>> model[1].weight.data.view(2, 8, 8)[:, :2, :2] = torch.tensor([-2.0, 2.0])[:, None, None]
        >>> model[1].bias.data = torch.tensor([4.0, -4.0])
        >>> report = lrptrain.inspect(model, [(images, labels)])
        >>> report.to_review[0].name
        'the top left corner'

    Args:
        model: The model, as for `lrptrain.Monitor`; it stays as it is.
        samples: The data, as for `lrptrain.Monitor`; best those that the model was not trained on.
        step: See `lrptrain.Monitor`.
        forward_context: See `lrptrain.Monitor`.
        **options: Of those of `RelevanceMonitor`: `max_samples`, `batch_adapter`, `annotate`, `explain`, `task`,
            `tokenizer`, `method`, `show`, `run`, `cues` and `judge`.

    Raises:
        TypeError: If there is no such option.
        ValueError: If model or data cannot work, with what to change.
    """
    if rank_and_size()[1] > 1:
        raise ValueError("inspect runs in one process: call it in one, after training")
    options = {"kind": INSPECTS, **options}
    monitor = Monitor(model, samples, step=step, forward_context=forward_context, **options)
    context = monitor._context(0, 0)
    core = monitor.core
    drawn: list[Sample] = core.reader.finish(core.failures.note)
    with at_rest(context.model):
        evaluator: Evaluator = core.explainer.evaluator(context, 0)
        explained, problems = evaluator.explain_usable(drawn)
        report = _inspected(monitor, explained, evaluator, context.names.sources)
    left_out = {**core.reader.sample.left_out, **problems}
    report.untested.extend(f"the sample {sample_id}: {problem}" for sample_id, problem in left_out.items())
    return report


def _inspected(
    monitor: Monitor, explained: Sequence[ExplainedSample], evaluator: Evaluator, sources: Sequence[Any]
) -> Inspection:
    recorder = monitor.core.recorder
    evaluation = Evaluation(explained, [each.sample for each in explained])
    names = recorder.names(evaluation, sources)
    options = recorder.options(names, sources)
    language = recorder.language(sources, evaluator.model)
    judging = monitor.core.judging
    judgement = judging.judge(evaluator, evaluation, range(len(explained)), language, None, names)
    judging.update(judgement, [], evaluation, names)
    shown = judging.shown(explained)
    is_lightning = any(each.__name__ == "LightningModule" for source in sources for each in type(source).__mro__)
    call = Names.guidance if is_lightning else GUIDANCE
    guidance = monitor.config.meaning.in_guidance(call.replace("monitor.", "report."))
    findings: list[Finding] = []
    if shown.tells:
        findings = findings_of(judgement.judged, evaluation, names, options.name_tokens, guidance=guidance)
        findings = with_proofs(findings, judgement, examples_of(judgement), options, "")
    right = np.concatenate([each.is_right for each in explained])
    return Inspection(
        findings=findings,
        judged=judgement.judged,
        samples=len(explained),
        accuracy=float(right.mean()) if len(right) else math.nan,
        guessing=guessing(evaluation),
        power=shown,
        untested=[*judgement.untested],
        passes=judgement.passes / len(explained),
    )
