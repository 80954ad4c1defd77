from typing import Any

import pytest
import torch
from audited import batches, context, model
from model_zoo import KINDS, select

import lrptrain
from lrptrain.auditing.context import AuditContext, AuditSettings, content_of_map, fingerprint, predict_batches
from lrptrain.relevance.passes.recording import explained_input


def test_samples_are_read_in_their_order():
    audit = context()
    images = torch.cat([batch["image"] for batch in batches()])
    torch.testing.assert_close(audit.logits, audit.model(images).float())
    assert len(audit) == 10
    assert audit.label.tolist() == [0, 1, 2, 3, 4] * 2


def test_maps_are_of_the_predicted_class_and_made_once():
    audit = context("bert")
    batch = audit.batches[0]
    expected = lrptrain.attribute(audit.model, batch.inputs, batch.logits.argmax(1), "input_x_gradient")
    torch.testing.assert_close(audit.maps("input_x_gradient")[0].scores, expected.scores)
    again = audit.maps("input_x_gradient")
    assert all(one is other for one, other in zip(audit.maps("input_x_gradient"), again, strict=True))


def test_a_few_samples_are_the_first_ones_with_maps_of_their_own():
    audit = context("bert")
    audit.maps("random")
    few = audit.first_samples(2)
    assert len(few) == 2
    assert few.maps("random")[0].scores.shape[0] == 2
    torch.testing.assert_close(few.logits, audit.logits[:2])
    assert len(audit) == 10


def test_methods_that_cannot_explain_the_model_are_left_out():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5)).double()
    audit = AuditContext(net, predict_batches(net, batches()), ("raw_attention", "attnlrp", "random"))
    assert "raw_attention" not in audit.supported_methods()


def test_samples_without_labels_and_no_samples():
    net = model()
    (batch,) = predict_batches(net, [{"image": batches()[0]["image"]}])
    assert batch.label.tolist() == [-1] * 6
    with pytest.raises(ValueError, match="contain none"):
        predict_batches(net, [])


def test_the_fingerprint_knows_weights_and_samples():
    net, samples = model(), batches()
    first = fingerprint(net, samples)
    assert first == fingerprint(model(), batches())
    assert first != fingerprint(net, samples[:1])
    with torch.no_grad():
        net.head.bias[0] += 1e-9
    assert first != fingerprint(net, samples)


def test_content_is_every_patch_and_a_text_without_its_ends_and_padding():
    assert content_of_map(torch.zeros(2, 3, 8, 8), 4).all()
    inputs = KINDS["bert"].inputs()
    words = [[i < length for i in range(10)] for length in (10, 7, 4)]
    assert content_of_map(inputs, 10).tolist() == words  # no two texts begin or end alike
    embedded = {"inputs_embeds": inputs["input_ids"][..., None].float(), "attention_mask": inputs["attention_mask"]}
    assert content_of_map(embedded, 10).tolist() == words
    inputs["input_ids"][:, 0] = 2
    inputs["input_ids"][torch.arange(3), inputs["attention_mask"].sum(1) - 1] = 3
    embedded["inputs_embeds"] = inputs["input_ids"][..., None].float()
    expected = [[1 <= i < length - 1 for i in range(10)] for length in (10, 7, 4)]
    assert content_of_map(inputs, 10).tolist() == expected
    assert content_of_map(embedded, 10).tolist() == expected
    left = {name: x.flip(1) for name, x in inputs.items()}
    assert torch.equal(content_of_map(left, 10), torch.tensor(expected).flip(1))
    alone = select(inputs, slice(0, 1))["input_ids"]
    assert content_of_map(alone, explained_input(alone)[1].shape[1]).sum() == 8


def test_maps_are_timed_once_per_batch():
    audit = context()
    seconds = audit.seconds("random")
    assert len(seconds) == len(audit.batches)
    assert min(seconds) > 0
    assert audit.seconds("random") == seconds


@pytest.mark.parametrize("name", ["batch_size", "random_maps", "stages"])
def test_settings_are_positive(name):
    none: Any = {name: 0}
    with pytest.raises(ValueError, match=name):
        AuditSettings(**none)
