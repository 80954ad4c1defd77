"""What the tests on models and attention say, in plain sentences with the numbers in them."""

from collections.abc import Iterator

import numpy as np

from lrptrain.audit.result import AuditResult
from lrptrain.audit.training_tests import read_wish
from lrptrain.audit.verdict import said, summary

MOOT = 0.05
"""Uniform attention costs nothing worth speaking of if the loss of accuracy is surely below this."""
SAME = 0.05
"""Mean TVD of the outputs up to which two models say the same."""
FAR = 0.35
"""JSD from which two maps say different things: half of the most there is, ln 2 = 0.69."""


def sentences(result: AuditResult) -> list[str]:
    """One or two sentences for every test of models and attention that was run."""
    tellers = (_uniform, _permutation, _adversarial, _frozen, _seeds, _adversaries)
    return [sentence for teller in tellers for sentence in teller(result)]


def _uniform(result: AuditResult) -> Iterator[str]:
    values = result.values("uniform")
    if not values:
        return
    if not values["right"]:
        kept = np.mean(values["same"])
        yield f"With uniform attention in every block the model keeps {kept:.0%} of its predictions."
        return
    lost = summary([own - other for own, other in zip(values["right"], values["right_uniform"], strict=True)])
    answers = f"{np.mean(values['right_uniform']):.0%} right instead of {np.mean(values['right']):.0%}"
    if lost.high < MOOT:
        meant = "attention's weights are not needed here: whether they explain the prediction is moot"
    elif lost.low > 0:
        meant = "the model needs its attention"
    else:
        meant = "whether it needs its attention cannot be told from so few samples"
    yield f"With uniform attention in every block the model is {answers} (loss {said(lost)}): {meant}."


def _permutation(result: AuditResult) -> Iterator[str]:
    values = result.values("permutation")
    if values:
        moved = summary(values["median_tvd"])
        meant = "which token has which weight hardly matters" if moved.high < SAME else "it matters which token has it"
        yield (
            "Shuffling the last block's attention to the content tokens moves the output by a TVD of "
            f"{said(moved)} (median over shuffles, mean over samples): {meant}."
        )


def _adversarial(result: AuditResult) -> Iterator[str]:
    values = result.values("adversarial")
    if values:
        share = float(np.mean(np.array(values["jsd"]) > FAR))
        yield (
            f"For {share:.0%} of the samples other attention in the last block (JSD above {FAR}) was found that leaves "
            f"the prediction; mean JSD {said(summary(values['jsd']))} of at most 0.69."
        )


def _frozen(result: AuditResult) -> Iterator[str]:
    accuracies = {
        unit.of: summary(unit.values["right"]) for unit in result.units if unit.test == "frozen" and unit.values
    }
    if "uniform" in accuracies and len(accuracies) > 1:
        others = ", ".join(f"{name} {score.value:.0%}" for name, score in accuracies.items() if name != "uniform")
        even = accuracies["uniform"].value
        yield (
            f"A model of single tokens is {even:.0%} right with uniform weights; with weights "
            f"of: {others}. (Maps of the predicted class can tell it that class.)"
        )


def _seeds(result: AuditResult) -> Iterator[str]:
    models = [unit.values for unit in result.units if unit.test == "seeds" and unit.values]
    if not models:
        return
    moved = np.mean([np.mean(values["tvd"]) for values in models])
    apart = {own: np.mean([np.nanmean(values["jsd"][own]) for values in models]) for own in models[0]["jsd"]}
    shown = ", ".join(f"{method} {value:.2f}" for method, value in apart.items())
    yield (
        f"Models of other seeds ({len(models)}): outputs differ by a mean TVD of {moved:.2f}, maps by a mean JSD of: "
        f"{shown}."
    )


def _adversaries(result: AuditResult) -> Iterator[str]:
    best: dict[str, float | None] = {}
    for unit in result.units:
        if unit.test == "adversary" and unit.values:
            method, _ = read_wish(unit.of)
            own, found = best.setdefault(method, None), float(np.nanmean(unit.values["jsd"]))
            if np.mean(unit.values["tvd"]) <= SAME:
                best[method] = found if own is None else max(own, found)
    for method, jsd in best.items():
        if jsd is None:
            yield f"{method}: no model with the same answers (mean TVD up to {SAME}) and other maps was found."
        else:
            yield (
                f"{method}: a model was trained that answers the same (mean TVD up to {SAME}) with maps that differ by "
                f"a mean JSD of {jsd:.2f} (at most 0.69)."
            )
