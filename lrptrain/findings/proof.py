"""The proof of a finding: a few samples as they are, changed, and under the control, with what the model answers."""

import base64
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lrptrain.findings.finding import Finding

Mark = Literal["", "gone", "new"]
MarkedWord = tuple[str, Mark]
"""A word of a text, and whether it was taken away or put in."""

_STYLES = {"": "", "gone": "text-decoration:line-through;color:#b91c1c", "new": "font-weight:bold;color:#166534"}


@dataclass(frozen=True)
class ProvenSample:
    """One sample, and the probability of the class that the model answers of it as it is.

    Attributes:
        sample_id: The id of the sample.
        answer: The name of the class.
        before: Its probability, in [0, 1].
        changed: Its probability with the place changed.
        control: Its probability under the control.
        instead: The class that the model answers with the place changed, if it is another one; "" else.
        changed_words: The changed text with what was taken away; empty for images.
        control_words: The same of the control.
    """

    sample_id: int | str
    answer: str
    before: float
    changed: float
    control: float
    changed_words: tuple[MarkedWord, ...] = ()
    control_words: tuple[MarkedWord, ...] = ()
    instead: str = ""

    @property
    def then(self) -> str:
        """What is answered instead, to stand behind the probability of the answer; "" if nothing else is."""
        return f", then class {self.instead}" if self.instead else ""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ProvenSample":
        """Return the sample of a record."""
        words = {
            name: tuple((text, mark) for text, mark in values[name]) for name in ("changed_words", "control_words")
        }
        return cls(**{**values, **words})


@dataclass(frozen=True)
class Proof:
    """What the exchange did to a few samples of a finding.

    Attributes:
        change: What was done to the place, such as `Painted over`.
        control: What was done instead for the control, such as `random places`.
        samples: The samples.
        note: What there is to know of the probabilities, or "".
        path: The file in the folder of the run that shows them; "" where it was not kept.
        png: Images: a picture with a row per sample, as it is, changed, and under the control. Not in the record.
    """

    change: str
    control: str
    samples: tuple[ProvenSample, ...]
    note: str = ""
    path: str = ""
    png: bytes = field(default=b"", repr=False, compare=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Proof":
        """Return the proof of a record."""
        samples = tuple(ProvenSample.from_dict(each) for each in values["samples"])
        return cls(values["change"], values["control"], samples, values.get("note", ""), values.get("path", ""))


def proof_html(finding: "Finding") -> str:
    """Return the proof of a finding as a block of HTML that needs no other file; "" if there is none."""
    proof = finding.proof
    if proof is None:
        return ""
    picture = ""
    if proof.png:
        data = base64.b64encode(proof.png).decode()
        description = f"as it is, {proof.change.lower()}, and the control ({proof.control})"
        picture = f'<img style="max-width:100%" alt="{html.escape(description)}" src="data:image/png;base64,{data}">'
    note = f"<div>{html.escape(proof.note)}</div>" if proof.note else ""
    return f"<div>{picture}{''.join(_sample_html(each, proof) for each in proof.samples)}{note}</div>"


def sample_caption(sample: ProvenSample, proof: Proof) -> str:
    """Return one line of what the model answers of a sample, before and after."""
    return (
        f"#{sample.sample_id}, class {sample.answer}: {sample.before:.0%} as it is, {sample.changed:.0%} "
        f"{proof.change[0].lower()}{proof.change[1:]}{sample.then}, "
        f"{sample.control:.0%} under the control ({proof.control})"
    )


def _sample_html(sample: ProvenSample, proof: Proof) -> str:
    texts = ((proof.change, sample.changed_words), (f"Control, {proof.control}", sample.control_words))
    lines = "".join(f"<div>{html.escape(name)}: {_words_html(words)}</div>" for name, words in texts if words)
    return f"<div><b>{html.escape(sample_caption(sample, proof))}</b></div>{lines}"


def _words_html(words: tuple[MarkedWord, ...]) -> str:
    return " ".join(
        f'<span style="{_STYLES[mark]}">{html.escape(text)}</span>' if mark else html.escape(text)
        for text, mark in words
    )
