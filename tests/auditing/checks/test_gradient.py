"""The test is what its function says, over all batches."""

import pytest
import torch
from audited import context, registered

from lrptrain.auditing import map_correlation

METHOD = "input_x_gradient"


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_the_correlation_of_all_batches(name):
    audit = context(name)
    values = registered("gradient").run(audit, METHOD)
    correlations = [
        map_correlation(audit.model, batch.inputs, batch.target, METHOD, "gradient") for batch in audit.batches
    ]
    for key in ("tau", "p_value"):
        expected = torch.cat([getattr(correlation, key) for correlation in correlations])
        measured = torch.tensor(values[key], dtype=torch.float64)
        torch.testing.assert_close(measured, expected, atol=1e-6, rtol=0, equal_nan=True)
