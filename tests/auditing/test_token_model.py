import math

import pytest
import torch
from audited import context
from model_zoo import KINDS
from small_models import Small, patches

from lrptrain.auditing.distances import as_distribution
from lrptrain.auditing.token_model import TokenMLP, accuracy, token_features, tokens_of, train_frozen


def needles(samples, seed, tokens=12):
    """Each sample's class is told by one token that looks like the others' but is named by the weights."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, tokens, 6, generator=generator)
    place = torch.randint(tokens, (samples,), generator=generator)
    labels = (features[torch.arange(samples), place, 0] > 0).long()
    usable = torch.ones(samples, tokens, dtype=torch.bool)
    return features, usable, torch.nn.functional.one_hot(place, tokens).float(), labels


def test_weights_that_point_to_the_evidence_help():
    train, test = needles(300, 0), needles(300, 1)
    scores = {}
    for name in ("pointing", "uniform"):
        weights = [
            part[2] if name == "pointing" else as_distribution(torch.ones(300, 12), part[1]) for part in (train, test)
        ]
        model = train_frozen(train[0], train[1], weights[0], train[3], classes=2, steps=200, lr=0.01)
        scores[name] = accuracy(model, test[0], test[1], weights[1], test[3])
    assert scores["pointing"] > 0.93
    assert scores["uniform"] < 0.75


def test_learned_weights_find_marked_evidence_that_uniform_ones_drown():
    def marked(seed):
        features, usable, weights, labels = needles(400, seed, tokens=40)
        features[..., 1] = 3 * weights
        return features, usable, as_distribution(torch.ones(400, 40), usable), labels

    train, test = marked(0), marked(1)
    found = [
        accuracy(train_frozen(*train, classes=2, steps=200, lr=0.01, learned=learned), *test)
        for learned in (False, True)
    ]
    assert found[1] > found[0] + 0.1
    assert found[1] > 0.9


def test_the_model_sums_hidden_states_by_their_weights():
    torch.manual_seed(0)
    model, features = TokenMLP(4, 3, hidden=5).double(), torch.randn(2, 6, 4).double()
    usable = torch.rand(2, 6) > 0.3
    weights = as_distribution(torch.rand(2, 6).double(), usable)
    states = torch.stack([weights[:, i, None] * model.hidden(features[:, i]).tanh() for i in range(6)]).sum(0)
    torch.testing.assert_close(model(features, usable, weights), model.classifier(states))
    learned = TokenMLP(4, 3, learned=True, hidden=5).double()
    moved = torch.where(usable[..., None], features, 100.0)
    torch.testing.assert_close(learned(features, usable, weights), learned(moved, usable, weights))


def test_the_seed_fixes_it_and_the_random_state_stays():
    features, usable, weights, labels = needles(40, 0)
    state = torch.get_rng_state()
    with torch.no_grad():
        first, again, other = (
            train_frozen(features, usable, weights, labels, classes=2, steps=3, seed=seed) for seed in (0, 0, 1)
        )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.hidden.weight, again.hidden.weight)
    assert not torch.equal(first.hidden.weight, other.hidden.weight)


def test_samples_without_a_label_take_no_part():
    features, usable, weights, labels = needles(40, 0)
    labels[20:] = -1
    model = train_frozen(features, usable, weights, labels, classes=2, steps=3)
    cut = train_frozen(*(x[:20] for x in (features, usable, weights, labels)), classes=2, steps=3)
    torch.testing.assert_close(model.hidden.weight, cut.hidden.weight)
    expected = accuracy(cut, *(x[:20] for x in (features, usable, weights, labels)))
    assert accuracy(model, features, usable, weights, labels) == expected
    nothing = torch.full_like(labels, -1)
    assert math.isnan(accuracy(model, features, usable, weights, nothing))
    with pytest.raises(ValueError, match="label"):
        train_frozen(features, usable, weights, nothing, classes=2)


def test_features_are_word_embeddings_or_the_pixels_of_patches():
    model, inputs = KINDS["bert"].build(True), KINDS["bert"].inputs()
    features, usable = token_features(model, inputs)
    assert torch.equal(features, model.bert.embeddings.word_embeddings(inputs["input_ids"]))
    assert usable.sum(1).tolist() == [8, 5, 2]
    images = patches()
    features, usable = token_features(Small(), images)
    assert usable.shape == (3, 16)
    assert torch.equal(features[:, 6].view(3, 3, 4, 4), images[:, :, 4:8, 8:12])


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_tokens_of_all_batches_are_padded_to_the_longest(name):
    tokens = tokens_of(context(name, train=True), "train_batches")
    assert tokens.features.shape[:2] == tokens.usable.shape
    assert len(tokens.label) == 10
    assert not tokens.features[~tokens.usable & (tokens.features.abs().sum(-1) == 0)].any()
