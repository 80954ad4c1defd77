import pytest
import torch
from audited import METHODS, batches, model

import lrptrain
from lrptrain.audit.subject import Subject, fingerprint, prepare


def subject(name="vit", methods=METHODS):
    net = model(name)
    return Subject(net, prepare(net, batches(name)), methods)


def test_samples_are_read_in_their_order():
    found = subject()
    whole = torch.cat([batch["image"] for batch in batches()])
    torch.testing.assert_close(found.logits, found.model(whole).float())
    assert len(found) == 10
    assert found.label.tolist() == [0, 1, 2, 3, 4] * 2


def test_maps_are_of_the_predicted_class_and_made_once():
    found = subject("bert")
    part = found.parts[0]
    expected = lrptrain.attribute(found.model, part.inputs, part.logits.argmax(1), "input_x_gradient")
    torch.testing.assert_close(found.maps("input_x_gradient")[0].scores, expected.scores)
    assert found.maps("input_x_gradient") is found.maps("input_x_gradient")


def test_a_few_samples_are_the_first_ones_with_maps_of_their_own():
    found = subject("bert")
    found.maps("random")
    few = found.few(2)
    assert len(few) == 2
    assert few.maps("random")[0].scores.shape[0] == 2
    torch.testing.assert_close(few.logits, found.logits[:2])
    assert len(found) == 10


def test_methods_that_cannot_serve_are_left_out():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5)).double()
    found = Subject(net, prepare(net, batches()), ("raw_attention", "attnlrp", "random"))
    assert "raw_attention" not in found.serving()


def test_samples_without_labels_and_no_samples():
    net = model()
    (part,) = prepare(net, [{"image": batches()[0]["image"]}])
    assert part.label.tolist() == [-1] * 6
    with pytest.raises(ValueError, match="hold none"):
        prepare(net, [])


def test_the_fingerprint_knows_weights_and_samples():
    net, own = model(), batches()
    first = fingerprint(net, own)
    assert first == fingerprint(model(), batches())
    assert first != fingerprint(net, own[:1])
    with torch.no_grad():
        net.head.bias[0] += 1e-9
    assert first != fingerprint(net, own)
