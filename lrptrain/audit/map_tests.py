"""Tests of a method's maps on a subject: what an audit measures of every method."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.audit.agreement import agreement
from lrptrain.audit.attention import content_tokens
from lrptrain.audit.correlation import rank_association, reference_scores
from lrptrain.audit.effort import Effort
from lrptrain.audit.perturbation import order_worth, random_worth
from lrptrain.audit.randomisation import randomisation_check
from lrptrain.audit.store import Values
from lrptrain.audit.subject import Subject


def perturbation(subject: Subject, method: str, effort: Effort) -> Values:
    """`gain`: of the method's order over random orders, per sample; see `perturbation_gain`."""
    model, fill = subject.model, subject.fill
    drawn: dict[str, Any] = {"fill": fill, "random_maps": effort.random_maps, "seed": subject.seed}
    by_chance = subject.once(
        "random orders", lambda: [random_worth(model, part.inputs, part.target, **drawn) for part in subject.parts]
    )
    gains = []
    for part, found, chance in zip(subject.parts, subject.maps(method), by_chance, strict=True):
        gains.append(order_worth(model, part.inputs, part.target, found.scores, found.grid, fill) - chance)
    return {"gain": floats(torch.cat(gains))}


def randomisation(subject: Subject, method: str, effort: Effort) -> Values:
    """`left`: rank correlation of the absolute maps with those of lost weights, per sample; `by_stage`: its means."""
    options: dict[str, Any] = {"stages": effort.stages, "seed": subject.seed}
    checks = [randomisation_check(subject.model, part.inputs, part.target, method, **options) for part in subject.parts]
    absolute = torch.cat([check.absolute for check in checks], 1)
    return {"left": floats(absolute[-1]), "by_stage": floats(absolute.nanmean(1)), "stages": list(checks[0].stages)}


def leave_one_out(subject: Subject, method: str, effort: Effort) -> Values:
    """`tau`, `p_value`: Kendall's with the change of the output when a token is left out, per sample."""
    return _correlation(subject, method, "leave_one_out")


def gradient(subject: Subject, method: str, effort: Effort) -> Values:
    """`tau`, `p_value`: Kendall's with |gradient * input|, attention detached, per sample."""
    return _correlation(subject, method, "gradient")


def _correlation(subject: Subject, method: str, reference: Literal["gradient", "leave_one_out"]) -> Values:
    model = subject.model
    references = subject.once(
        reference, lambda: [reference_scores(model, part.inputs, part.target, reference) for part in subject.parts]
    )
    found = [
        rank_association(each.scores.abs(), scores, content_tokens(part.inputs, scores.shape[1]))
        for part, each, scores in zip(subject.parts, subject.maps(method), references, strict=True)
    ]
    return {
        "tau": floats(torch.cat([each.tau for each in found])),
        "p_value": floats(torch.cat([each.p_value for each in found])),
    }


def agree(subject: Subject, _: str, effort: Effort) -> Values:
    """`matrix`: mean rank correlation between the maps of `methods`; those that cannot serve the model are left out."""
    methods = subject.serving()
    columns = []
    for number, part in enumerate(subject.parts):
        maps = {method: subject.maps(method)[number].scores for method in methods}
        usable = content_tokens(part.inputs, next(iter(maps.values())).shape[1])
        columns.append(agreement(maps, usable))
    matrix = torch.cat(columns, -1).nanmean(-1)
    return {"methods": methods, "matrix": [floats(row) for row in matrix]}


def floats(values: Float[Tensor, " n"]) -> list[float]:
    """As JSON knows them."""
    return [round(value, 6) for value in values.detach().double().cpu().tolist()]
