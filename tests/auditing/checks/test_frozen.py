"""Maps as weights of a token-wise model."""

import pytest
import torch
from audited import context, model, registered

from lrptrain.auditing import AuditContext, AuditSettings
from lrptrain.auditing.context import predict_batches
from lrptrain.relevance import Relevance


def test_units_are_weights_without_a_map_and_the_methods():
    assert registered("frozen").units(context()) == (
        "uniform", "learned", "raw_attention", "input_x_gradient", "random"
    )  # fmt: skip


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_every_labelled_sample_is_right_or_wrong(name):
    audit = context(name, train=True)
    for unit in ("uniform", "learned", "random"):
        right = registered("frozen").run(audit, unit)["right"]
        assert len(right) == 10
        assert set(right) <= {0.0, 1.0}


def test_the_token_model_learns_what_its_weights_show_it():
    """The label is whether the first patch is bright: weights on it make the task easy, others impossible."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(80, 3, 32, 32, generator=generator, dtype=torch.float64)
    label = torch.arange(80) % 2
    images[:, :, :8, :8] += 4 * (2 * label - 1)[:, None, None, None]
    net = model()
    train, test = (
        predict_batches(net, [{"image": images[rows], "label": label[rows]}]) for rows in (slice(40), slice(40, 80))
    )
    audit = AuditContext(net, test, ("random",), train)
    accuracies = []
    for patch in (0, 5):
        scores = torch.zeros(40, 16, dtype=torch.float64)
        scores[:, patch] = 1
        relevance = Relevance(scores, test[0].logits, test[0].target, "random", (4, 4))
        audit._cache[("maps", "random")] = audit._cache[("train maps", "random")] = [relevance]
        frozen = registered("frozen", AuditSettings(frozen_steps=60))
        accuracies.append(sum(frozen.run(audit, "random")["right"]) / 40)
    assert accuracies[0] == 1
    assert accuracies[1] < 0.8
