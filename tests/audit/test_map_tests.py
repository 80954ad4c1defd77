"""What an audit measures of a method is what the functions say, over all batches."""

from typing import Literal

import pytest
import torch
from audited import QUICK, batches, model

from lrptrain.audit import map_correlation, perturbation_gain, randomisation_check
from lrptrain.audit.attention import content_tokens
from lrptrain.audit.map_tests import agree, gradient, leave_one_out, perturbation, randomisation
from lrptrain.audit.subject import Subject, prepare
from lrptrain.metrics import rank_correlation

METHOD = "input_x_gradient"


@pytest.fixture(params=["vit", "bert"])
def subject(request):
    net = model(request.param)
    return Subject(net, prepare(net, batches(request.param)), (METHOD, "raw_attention"))


def close(values, function, subject):
    expected = torch.cat([function(part.inputs, part.target) for part in subject.parts]).double()
    torch.testing.assert_close(torch.tensor(values, dtype=torch.float64), expected, atol=1e-5, rtol=0)


def test_each_is_what_its_function_says(subject):
    net = subject.model
    found = perturbation(subject, METHOD, QUICK)["gain"]
    close(found, lambda inputs, target: perturbation_gain(net, inputs, target, METHOD, random_maps=1), subject)
    found = randomisation(subject, METHOD, QUICK)
    checks = [randomisation_check(net, part.inputs, part.target, METHOD, stages=1) for part in subject.parts]
    close(found["left"], lambda inputs, target: checks.pop(0).absolute[-1], subject)
    assert len(found["stages"]) == len(found["by_stage"]) == 1
    references: tuple[Literal["gradient", "leave_one_out"], ...] = ("gradient", "leave_one_out")
    for test, reference in zip((gradient, leave_one_out), references, strict=True):
        values = test(subject, METHOD, QUICK)
        for name in ("tau", "p_value"):
            close(values[name], lambda x, y: getattr(map_correlation(net, x, y, METHOD, reference), name), subject)  # noqa: B023


def test_agreement_is_the_mean_rank_correlation(subject):
    found = agree(subject, "", QUICK)
    assert found["methods"] == [METHOD, "raw_attention"]
    pairs = []
    for number, part in enumerate(subject.parts):
        one, other = (subject.maps(method)[number].scores for method in found["methods"])
        pairs.append(rank_correlation(one, other, content_tokens(part.inputs, one.shape[1])))
    assert found["matrix"][0][1] == pytest.approx(torch.cat(pairs).nanmean().item(), abs=1e-5)
    assert found["matrix"][0][0] == pytest.approx(1.0)
