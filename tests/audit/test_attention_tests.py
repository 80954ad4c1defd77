"""What an audit measures of attention."""

import pytest
import torch
from audited import QUICK, batches, model

from lrptrain.audit import permuted_attention, uniform_attention_logits
from lrptrain.audit.attention_tests import _tokens, frozen, permutation, right, uniform
from lrptrain.audit.effort import Effort
from lrptrain.audit.subject import Subject, prepare
from lrptrain.relevance import Relevance


@pytest.fixture(params=["vit", "bert"])
def subject(request):
    net = model(request.param)
    parts = prepare(net, batches(request.param))
    return Subject(net, parts, ("random", "raw_attention"), prepare(net, batches(request.param, (4, 3, 3))))


def test_uniform_attention_over_all_batches(subject):
    found = uniform(subject, "", QUICK)
    logits = torch.cat([uniform_attention_logits(subject.model, part.inputs) for part in subject.parts])
    moved = (subject.logits.softmax(1) - logits.softmax(1)).abs().sum(1) / 2
    torch.testing.assert_close(torch.tensor(found["tvd"]).double(), moved.double(), atol=1e-5, rtol=0)
    assert found["right_uniform"] == (logits.argmax(1) == subject.label).double().tolist()
    assert found["same"] == (logits.argmax(1) == subject.logits.argmax(1)).double().tolist()
    assert len(found["jsd"]) == 10
    assert max(found["jsd"]) > 0


def test_permutation_does_not_depend_on_the_batches(subject):
    found = permutation(subject, "", QUICK)
    part = subject.parts[1]
    alone = permuted_attention(subject.model, part.inputs, QUICK.shuffles, 0)
    torch.testing.assert_close(
        torch.tensor(found["median_tvd"][6:]).double(), alone.median_tvd.double(), atol=1e-5, rtol=0
    )


def test_tokens_of_all_batches_are_padded_to_the_longest(subject):
    tokens = _tokens(subject, "train")
    assert tokens.features.shape[:2] == tokens.usable.shape
    assert len(tokens.label) == 10
    assert not tokens.features[~tokens.usable & (tokens.features.abs().sum(-1) == 0)].any()


def test_the_token_model_learns_what_its_weights_show_it():
    """The label is whether the first patch is bright: weights on it make the task easy, others impossible."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(80, 3, 32, 32, generator=generator, dtype=torch.float64)
    label = torch.arange(80) % 2
    images[:, :, :8, :8] += 4 * (2 * label - 1)[:, None, None, None]
    net = model()
    train, test = (prepare(net, [{"image": images[rows], "label": label[rows]}]) for rows in (slice(40), slice(40, 80)))
    subject = Subject(net, test, ("random",), train)
    found = []
    for place in (0, 5):
        scores = torch.zeros(40, 16, dtype=torch.float64)
        scores[:, place] = 1
        own = Relevance(scores, test[0].logits, test[0].target, "random", (4, 4))
        subject._kept[("maps", "random")] = subject._kept[("train", "random")] = [own]
        found.append(sum(frozen(subject, "random", Effort(frozen_steps=60))["right"]) / 40)
    assert found[0] == 1
    assert found[1] < 0.8


def test_right_answers_of_labelled_samples_alone():
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert right(logits, torch.tensor([0, -1, 1])) == [1.0, 0.0]
