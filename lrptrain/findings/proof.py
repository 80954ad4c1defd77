"""The proof of a finding: a few samples as they are, swapped, and under the control, with what the model answers."""

import base64
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lrptrain.findings.sentences import percent

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

Mark = Literal["", "gone", "new"]
MarkedWord = tuple[str, Mark]
"""A word of a text, and whether it is taken away or put in."""

_STYLES = {"": "", "gone": "text-decoration:underline;color:#b91c1c", "new": "font-weight:bold;color:#166534"}


@dataclass(frozen=True)
class ProvenSample:
    """One sample, and the probability of the class that the model answers of it as it is.

    Attributes:
        before: Its probability, in [0, 1].
        changed: Its probability in the swapped sample.
        control: Its probability under the control.
        changed_words: The swapped text with what was put in; empty for images.
        control_words: The same of the control.
        instead: The class that the model answers in the swapped sample, if it is another one; "" else.
        then: The probability of that class there; None where there is none.
        words: The text as it is, with what the swap takes away; empty for images.
    """

    sample_id: int | str
    answer: str
    before: float
    changed: float
    control: float
    changed_words: tuple[MarkedWord, ...] = ()
    control_words: tuple[MarkedWord, ...] = ()
    instead: str = ""
    then: float | None = None
    words: tuple[MarkedWord, ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ProvenSample":
        """Return the sample of a record."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        names = ("words", "changed_words", "control_words")
        words = {name: tuple((text, mark) for text, mark in values.get(name, ())) for name in names}
        return cls(**{**known, **words})


@dataclass(frozen=True)
class Proof:
    """What the exchange did to a few samples of a finding.

    Attributes:
        change: What was done to the cue, such as `Swapped with another class`.
        control: What was done instead for the control, such as `swapped within the class`.
        path: The file in the folder of the run that shows them; "" where it was not kept.
        png: Images: a picture with a row per sample, as it is, swapped, and under the control. Not in the record.
    """

    change: str
    control: str
    samples: tuple[ProvenSample, ...]
    path: str = ""
    png: bytes = field(default=b"", repr=False, compare=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Proof":
        """Return the proof of a record."""
        samples = tuple(ProvenSample.from_dict(each) for each in values["samples"])
        return cls(values["change"], values["control"], samples, values.get("path", ""))


class View(NamedTuple):
    """One of the three forms in which a sample is shown.

    Attributes:
        title: Which form it is, and what the model answers to it.
        words: Of a text, its words; empty for images.
    """

    title: str
    words: tuple[MarkedWord, ...]


def views(sample: ProvenSample, proof: Proof) -> tuple[View, View, View]:
    """Return a sample as it is, swapped, and under the control: whoever shows a proof shows these."""
    answer = _class(sample.answer)
    then = "" if sample.then is None else f" ({percent(sample.then)})"
    instead = f", {_class(sample.instead)}{then}" if sample.instead else ""
    return (
        View(f"Sample {sample.sample_id}, original: {answer} ({percent(sample.before)})", sample.words),
        View(f"{proof.change}: {answer} ({percent(sample.changed)}){instead}", sample.changed_words),
        View(f"Control, {proof.control}: {answer} ({percent(sample.control)})", sample.control_words),
    )


def _class(name: str) -> str:
    """Return the name of a class; of a number, that it is one."""
    return f"class {name}" if name.isdecimal() else name


def proof_html(finding: "Finding") -> str:
    """Return the proof of a finding as a block of HTML that needs no other file; "" if there is none."""
    proof = finding.proof
    if proof is None:
        return ""
    shown = [views(sample, proof) for sample in proof.samples]
    if proof.png:  # the titles are on it
        data = base64.b64encode(proof.png).decode()
        description = html.escape(". ".join(view.title for three in shown for view in three))
        body = f'<img style="max-width:100%" alt="{description}" src="data:image/png;base64,{data}">'
    else:
        blocks = ("".join(map(_view_html, three)) for three in shown)
        body = "".join(f'<div style="margin:.6em 0">{block}</div>' for block in blocks)
    return f"<div>{body}</div>"


def _view_html(view: View) -> str:
    words = " ".join(
        f'<span style="{_STYLES[mark]}">{html.escape(text)}</span>' if mark else html.escape(text)
        for text, mark in view.words
    )
    return f"<div><b>{html.escape(view.title)}</b><br>{words}</div>"
