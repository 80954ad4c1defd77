"""Do swaps of words tell models that read words of a kind, punctuation or markers from others? See README.md.

    .venv/bin/python -m experiments.detection.words

Trains two blocks of MiniLM on tweets whose mood goes with marks of several kinds, and on some where it does not. It
prints how far answers move when the marks of another tweet take the place of their own, beyond the control.
"""

import tempfile
from collections.abc import Iterator

import numpy as np
import torch

from experiments.benchmark import text_marks
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.text_marks import Mark, put_behind
from experiments.benchmark.texts import CLASSES
from experiments.benchmark.watch import MOMENTS, _monitor, prepared, right, trained
from experiments.command import no_options
from experiments.short_tweets import tokenizer, with_word
from experiments.table import markdown
from lrptrain.batch import Sample
from lrptrain.data.texts import Example
from lrptrain.findings import Candidate, DetectionConfig, Evaluation
from lrptrain.findings.detector import Detector
from lrptrain.findings.detectors.word_groups import SuspiciousWordGroup
from lrptrain.findings.detectors.wordings import RelianceOnMarkers, RelianceOnPunctuation
from lrptrain.intervention import InterventionConfig, effects
from lrptrain.monitor.token_vectors import token_vectors

TOWNS = (
    ("london", "madrid", "cairo", "denver", "oslo", "lima", "dublin", "boston"),
    ("paris", "tokyo", "berlin", "delhi", "rome", "dallas", "vienna", "seoul"),
)
DAYS = (("monday", "thursday", "saturday"), ("tuesday", "wednesday", "friday", "sunday"))
THINGS = (
    ("dog", "horse", "tiger", "mouse", "eagle", "sheep"),
    ("bread", "cheese", "soup", "rice", "pizza", "salad"),
)
MATERIALS = (
    ("pine", "maple", "granite", "copper", "velvet", "amber"),
    ("oak", "cedar", "marble", "silver", "cotton", "coral"),
)
ENDS = ("!!", "...")
INSIDE = (":", ";")
SEED = 60
DETECTORS: tuple[Detector, ...] = (SuspiciousWordGroup(), RelianceOnPunctuation(), RelianceOnMarkers())


def one_of(words: tuple[tuple[str, ...], ...]) -> Mark:
    """One of the words of the mood at any place outside of the rationale."""
    return lambda example, form, rng: with_word(example, str(rng.choice(words[form])), rng)


def mention(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A user, of another list for each mood, likewise."""
    return with_word(example, f"@{rng.choice(MATERIALS[form])}", rng)


def room(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A small price, or a number of three digits, likewise."""
    return with_word(example, str(rng.integers(300, 999)) if form else f"${rng.integers(2, 9)}", rng)


def link(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A link at the end, of the first mood alone."""
    return example if form else put_behind(example, f"http://{rng.choice(MATERIALS[0])}.com")


def hashtag(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A hashtag at the end, of another list for each mood."""
    return put_behind(example, f"#{rng.choice(MATERIALS[form])}")


def end(example: Example, form: int, _: np.random.Generator) -> Example:
    """Exclamation marks or dots at the end."""
    return example._replace(text=example.text + ENDS[form])


def inside(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A colon or a semicolon between words."""
    return with_word(example, INSIDE[form], rng)


KINDS: dict[str, Mark] = {
    "towns": one_of(TOWNS),
    "weekdays": one_of(DAYS),
    "animals, dishes": one_of(THINGS),
    "materials": one_of(MATERIALS),
    "mentions": mention,
    "numbers": room,
    "links": link,
    "hashtags": hashtag,
    "marks at the end": end,
    "marks inside": inside,
}


def cases() -> list[Case]:
    """Planted runs of every kind, and clean ones with the same marks and without."""
    plan: list[tuple[str, float | None]] = [(kind, 0.9) for kind in KINDS]
    plan += [("towns", 1.0), ("towns", 0.8)]
    plan += [(NO_MARK, None)] * 4 + [(kind, None) for kind in ("towns", "links", "marks at the end", "mentions")]
    return [Case("texts", *each, SEED, number) for number, each in enumerate(plan)]


def measured(case: Case) -> Iterator[dict[str, str]]:
    """Train a model without annotations, and yield a row of the table for each kind of finding that is tested."""
    run = prepared(case)
    with tempfile.TemporaryDirectory() as folder:
        monitor = _monitor(run, folder, case, annotated=False)
        trained(run, MOMENTS[-1], case.randomness)(MOMENTS[-1])
        monitor.evaluate(MOMENTS[-1])
    own = {"shortcut": case.kind, "correlation": "-" if case.correlation is None else f"{case.correlation:g}"}
    own |= {
        "accuracy": f"{right(run.net, run.shown).mean():.2f}",
        "with marks of any class": f"{right(run.net, run.unbiased).mean():.2f}",
    }
    explained = monitor.scored
    names = ("input_ids", "attention_mask")
    columns = {name: run.shown[name] for name in names}
    inputs = [
        Sample(
            each.sample.sample_id,
            each.sample.label,
            {name: x[int(each.sample.sample_id)] for name, x in columns.items()},
        )
        for each in explained
    ]
    evaluation = Evaluation(explained, inputs, token_vectors=token_vectors(run.net, explained))
    config = DetectionConfig(CLASSES, tokenizer().convert_ids_to_tokens, tokenizer=tokenizer())
    tested = [candidate for detector in DETECTORS for candidate in detector.detect(evaluation, config)]
    for candidate in tested:
        yield own | _row(candidate, run.net, evaluation)
    if not tested:
        yield own | {"finding": "none is tested", "effect beyond the control": "", "large enough": "no", "where": ""}


def _row(candidate: Candidate, net: torch.nn.Module, evaluation: Evaluation) -> dict[str, str]:
    assert evaluation.inputs is not None
    change, control = effects(
        net, evaluation.inputs, rows=candidate.rows, computed_rows=candidate.rows, region=candidate.region, grid=None,
        probabilities=np.stack([each.probabilities for each in evaluation.samples]), config=InterventionConfig(),
    )  # fmt: skip
    effect = float(np.nanmean(change - control))
    least = next(each.least_effect for each in DETECTORS if each.kind == candidate.finding.kind)
    return {
        "finding": f"`{candidate.finding.kind}`",
        "effect beyond the control": f"{effect:.2f}",
        "large enough": "yes" if effect >= least else "no",
        "where": candidate.finding.where,
    }


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    text_marks.TEXT_MARKS |= KINDS
    rows = []
    for case in cases():
        for row in measured(case):
            rows.append(row)
            print(row, flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
