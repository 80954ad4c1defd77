"""The tests of correlations, also that with the gradient, are what their function says, over all batches."""

import pytest
import torch
from audited import context, registered

from lrptrain.auditing import map_correlation
from lrptrain.auditing.score import summarize

METHOD = "input_x_gradient"


@pytest.mark.parametrize("name", ["vit", "bert"])
@pytest.mark.parametrize("reference", ["leave_one_out", "gradient"])
def test_a_unit_is_the_correlation_of_all_batches(reference, name):
    audit = context(name)
    values = registered(reference).run(audit, METHOD)
    correlations = [
        map_correlation(audit.model, batch.inputs, batch.target, METHOD, reference) for batch in audit.batches
    ]
    for key in ("tau", "p_value"):
        expected = torch.cat([getattr(correlation, key) for correlation in correlations])
        measured = torch.tensor(values[key], dtype=torch.float64)
        torch.testing.assert_close(measured, expected, atol=1e-6, rtol=0, equal_nan=True)


def test_a_tau_above_zero_passes_and_no_tau_decides():
    test = registered("leave_one_out")
    passed, failed = test.check(summarize([0.2, 0.3, 0.4])), test.check(summarize([-0.2, 0.3]))
    assert (passed.passed, failed.passed) == (True, False)
    assert not failed.decisive
    assert failed.reason.startswith("it does not agree with leave-one-out: tau 0.05 [")
