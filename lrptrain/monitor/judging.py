"""The third stage of a monitor: the test of cues on its sample, by all processes together, and what follows of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lrptrain.cues.cue import Cue
from lrptrain.cues.followed import Known
from lrptrain.cues.kinds import restored
from lrptrain.cues.measure import Indices
from lrptrain.cues.texts import Language
from lrptrain.findings import Finding, reliance
from lrptrain.findings.finding import Verdict
from lrptrain.findings.sentences import headline, percent
from lrptrain.monitor.config import FORBIDDEN
from lrptrain.monitor.each_label import judge_labels
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.judgement import Judgement, Tests
from lrptrain.monitor.power import Power, shown_by
from lrptrain.monitor.skill import Skill, sharpness
from lrptrain.monitor.state import RunState, state


def _plain(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [each.to_dict() for each in findings]


def _findings(_: Any, __: Any, plain: Sequence[dict[str, Any]]) -> list[Finding]:
    return [*map(Finding.from_dict, plain)]


def _key(finding: Finding) -> str:
    return "/".join(finding.identity)


def _skilled(_: Any, skill: Skill, learned: bool) -> Skill:
    skill.learned = learned
    return skill


class FindingError(RuntimeError):
    """Training has ended because of a finding that `fail_on` forbids."""


class Judging(RunState):
    """Judges evaluations, one after the other.

    Attributes:
        before: What the last one found, and what an earlier one did if it could tell nothing: their histories continue.
        telling: How many in a row could tell anything.
        told: By finding, its verdicts in those.
        has_doubts: Whether the user was told that probabilities are sharpened.
        earlier: What was named before, and in which sample: it is tested again.
    """

    findings: list[Finding] = state(lambda _: [], "findings", _plain, _findings)
    before: list[Finding] = state(lambda _: [], "before", _plain, _findings)
    judgement: Judgement = state(lambda _: Judgement())
    evaluations: int = state(lambda _: 0, "evaluations")
    telling: int = state(lambda _: 0, "telling")
    told: dict[str, list[Verdict]] = state(lambda _: {}, "told")
    skill: Skill = state(lambda _: Skill(), "learned", lambda skill: skill.learned, _skilled)
    has_doubts: bool = state(lambda _: False, "doubts")
    earlier: dict[str, Any] = state(lambda _: {}, "earlier")

    def start_over(self) -> None:
        """Forget the findings of earlier evaluations: a validation by itself is judged by itself.

        It may be of other weights, or of the same ones as the evaluation before: neither makes two in a row.
        """
        self.findings, self.before, self.told = [], [], {}
        self.evaluations = self.telling = 0

    def judge(
        self,
        evaluator: Evaluator,
        evaluation: Evaluation,
        mine: Sequence[int],
        language: Language,
        on_failure: Callable[[str], None] | None,
        class_names: Sequence[str] = (),
    ) -> Judgement:
        """Test what may decide the answers; what fails is reported, and the others continue."""
        if evaluation.inputs is None:
            return Judgement()
        ids = [each.sample.sample_id for each in evaluation.samples]
        before = self.earlier.get("cues", ()) if self.earlier.get("sample") == ids else ()
        earlier: dict[int | None, list[tuple[Cue, Indices]]] = {}
        for each in before:
            cue = restored(each["cue"], lambda: language)
            earlier.setdefault(each.get("label"), []).append((cue, np.array(each["rows"])))
        tests = Tests(evaluator, evaluation, mine, self._config, language, earlier, on_failure, class_names)
        judgement = judge_labels(tests) if evaluation.num_labels else tests.judge(self._sharpness(evaluation))
        # What the user gives is tested anyway, and so is all that is no evidence.
        given = self._config.cues or ()
        proposed = [each for each in judgement.judged if each.named and not (each.cue in given or each.cue.is_rest)]
        plain = [{"cue": each.cue.to_dict(), "rows": each.chosen.tolist(), "label": each.label} for each in proposed]
        self.earlier = {"sample": ids, "cues": plain}
        return judgement

    def update(
        self, judgement: Judgement, findings: list[Finding], evaluation: Evaluation, class_names: Sequence[str]
    ) -> None:
        """Take an evaluation into account; report it where the model has lost what it knew."""
        self.findings = findings
        self.judgement = judgement._replace(measures={})  # which hold the model
        self.evaluations += 1
        if self.skill.update(evaluation, class_names, self._config.judge.confidence):
            self._inform(f"{self._config.title}: {self.skill.text}")
        if self.power(evaluation.samples)["tells"]:
            self.before = findings
            self.told = {_key(each): [*self.told.get(_key(each), ()), each.verdict] for each in findings}
            self.telling += 1
        else:
            found = {each.identity for each in findings}
            self.before = [*findings, *(each for each in self.before if each.identity not in found)]

    def shown(self, scored: Sequence[ExplainedSample]) -> Power:
        """Return what the last evaluation shows of what the model does not rely on."""
        judgement, confidence = self.judgement, self._config.judge.confidence
        return shown_by(scored, judgement.judged, judgement.untested, confidence, self.skill.text, judgement.failed)

    def power(self, scored: Sequence[ExplainedSample]) -> dict[str, Any]:
        """Return what was tested, or that the model has collapsed."""
        if self.skill.collapsed:
            return {"tells": False, "text": self.skill.text, "collapsed": True}
        shown = self.shown(scored)
        plain = {name: value for name, value in shown._asdict().items() if name != "short"}
        return plain | {"headline": headline(self.findings, shown.can_fault)}

    def known(self) -> Known:
        """Return on which faults the model relies so far."""
        cues = tuple(each.cue for each in self.findings if each.is_fault and each.cue is not None)
        inputs = frozenset(each.input for each in self.findings if each.is_fault and each.input)
        return Known(cues, self.evaluations, self.skill.is_at_chance, inputs)

    def is_forbidden(self, at_end: bool = False) -> bool:
        """Return whether a finding stands that ends training; at the end, a shorter row of evaluations has to do."""
        return self._forbidden(at_end)[0] is not None

    def raise_if_forbidden(self, at_end: bool = False) -> None:
        """Raise an error for the most severe finding that ends training."""
        finding, required = self._forbidden(at_end)
        if finding is not None:
            times = f" in {required} evaluations in a row" if required > 1 else ""
            raise FindingError(f"stopped by fail_on={self._config.judge.fail_on!r}{times}: {finding}")

    def _forbidden(self, at_end: bool) -> tuple[Finding | None, int]:
        """Return the most severe finding that ends training, and in how many evaluations in a row it stood."""
        judge = self._config.judge
        found = most_severe_forbidden(self.findings, judge.fail_on, judge.fail_after)
        if found is not None:
            return found, judge.fail_after
        # Evaluations that could tell nothing are none without it.
        told = [replace(each, verdicts=tuple(self.told.get(_key(each), each.verdicts))) for each in self.findings]
        required = self._required(at_end)
        return most_severe_forbidden(told, judge.fail_on, required), required

    def _required(self, at_end: bool) -> int:
        """Return in how many evaluations in a row a finding has to stand."""
        fail_after = self._config.judge.fail_after
        return min(fail_after, max(self.telling, 1)) if at_end else fail_after

    def _sharpness(self, evaluation: Evaluation) -> float:
        """Return what sharpens the probabilities of a model whose accuracy exceeds its confidence; say so once."""
        power = sharpness(evaluation.probabilities, evaluation.labels)
        if power > 1 and not self.has_doubts:
            self.has_doubts = True
            confidence = float(evaluation.probabilities.max(1).mean())
            low = f"the confidence of {percent(confidence)} is below the accuracy"
            self._inform(f"{self._config.title}: {low}, so effects use calibrated probabilities")
        return power


def most_severe_forbidden(findings: Sequence[Finding], fail_on: str | None, required: int) -> Finding | None:
    """Return the most severe fault that `fail_on` forbade in the last `required` evaluations in a row, or None."""

    def lasts(fault: Finding) -> bool:
        latest = fault.verdicts[-required:]
        return len(latest) == required and all(verdict in FORBIDDEN[fail_on] for verdict in latest)

    forbidden = [each for each in findings if each.role == "shortcut" and lasts(each)]
    return max(forbidden, key=lambda finding: reliance([finding]), default=None)
