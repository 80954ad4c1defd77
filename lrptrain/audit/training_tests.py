"""Tests that train further models: do models of the same answers have the same maps?"""

import torch
from torch import Tensor

from lrptrain.audit.adversary import compare_models, train_adversary
from lrptrain.audit.attention import content_tokens
from lrptrain.audit.attention_tests import ATTENTION, right, token_model
from lrptrain.audit.distances import as_distribution, class_probabilities, jensen_shannon, total_variation
from lrptrain.audit.effort import Effort
from lrptrain.audit.map_tests import floats
from lrptrain.audit.store import Values
from lrptrain.audit.subject import Subject, explain
from lrptrain.batch import model_inputs
from lrptrain.relevance import record
from lrptrain.relevance.registry import get_method


def seeds(subject: Subject, number: str, effort: Effort) -> Values:
    """A model trained anew: what another seed changes.

    `right`, `tvd`: of its outputs, per sample; `jsd`: of its maps from the model's, per method and sample.
    """
    assert subject.retrain is not None
    other = subject.retrain(subject.seed + int(number)).to(subject.logits.device).eval()
    methods, logits = subject.serving(), []
    apart: dict[str, list[Tensor]] = {method: [] for method in methods}
    for place, part in enumerate(subject.parts):
        recorded = record(other, model_inputs(other, part.batch))  # one forward pass for all maps
        logits.append(recorded.logits)
        for method in methods:
            theirs = recorded.attribute(part.target, method).scores.detach()
            usable = content_tokens(part.inputs, theirs.shape[1])
            maps = (as_distribution(scores, usable) for scores in (subject.maps(method)[place].scores, theirs))
            apart[method].append(jensen_shannon(*maps))
    answers = torch.cat(logits)
    return {
        "right": right(answers, subject.label),
        "tvd": floats(total_variation(class_probabilities(subject.logits), class_probabilities(answers))),
        "jsd": {method: floats(torch.cat(each)) for method, each in apart.items()},
    }


def adversary(subject: Subject, wish: str, effort: Effort) -> Values:
    """A model trained for the same answers and other maps; `wish` is a method and a strength, as `wishes` writes them.

    `tvd`: of its outputs, `jsd`: of its maps, per sample; `right`: of a token-wise model that its maps weigh.
    """
    method, strength = read_wish(wish)
    train = [part.batch for part in subject.train]
    other = train_adversary(subject.model, train, method, strength, steps=effort.adversary_steps, seed=subject.seed)
    found = compare_models(subject.model, other, [part.batch for part in subject.parts], method)
    maps, theirs = ([explain(other, part, method) for part in parts] for parts in (subject.parts, subject.train))
    return {"tvd": floats(found.tvd), "jsd": floats(found.jsd), "right": token_model(subject, effort, (theirs, maps))}


def wishes(subject: Subject, effort: Effort) -> list[str]:
    """The adversaries of an audit, those of attention first: every differentiable method with every strength."""
    methods = sorted(subject.methods, key=lambda method: method != ATTENTION)
    able = [method for method in methods if get_method(method, {}).differentiable]
    return [f"{method} @ {strength:g}" for method in able for strength in effort.strengths]


def read_wish(wish: str) -> tuple[str, float]:
    """Method and strength of one of `wishes`."""
    method, _, strength = wish.partition(" @ ")
    return method, float(strength)
