"""The mean of any value per sample, with its interval, as a metric."""

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from lrptrain.metrics.base import keep_apart
from lrptrain.metrics.interval import mean_with_interval, merge_moments, moments_by_row, no_moments


class SampleMean(Metric):
    """Mean over samples of a value that is nan where undefined; a concept fills in `score`.

    `compute()` returns a dict:
    - `value`: mean over all samples with a value; nan if there is none,
    - `low`, `high`: its 95 % t interval; nan below two samples,
    - `samples`: how many samples had a value, `undefined`: how many had none.

    Args:
        **kwargs: Of `torchmetrics.Metric`.
    """

    is_differentiable = False
    full_state_update = False
    moments: Tensor
    undefined: Tensor

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.add_state("moments", no_moments(1), dist_reduce_fx=merge_moments)
        self.add_state("undefined", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        keep_apart(self)

    def score(self, *args: object, **kwargs: object) -> Float[Tensor, " batch"]:
        """The value per sample, nan where undefined."""
        raise NotImplementedError

    def update(self, *args: object, **kwargs: object) -> None:
        """Add a batch; the arguments are those of `score`."""
        values = self.score(*args, **kwargs)
        row = torch.zeros(len(values), dtype=torch.long, device=values.device)
        self.moments = merge_moments(torch.stack([self.moments, moments_by_row(values, row, 1)]))
        self.undefined = self.undefined + values.isnan().sum()

    def compute(self) -> dict[str, Tensor]:
        """The dict described above."""
        samples = self.moments[0, 0].long()
        return {**mean_with_interval(self.moments[0]), "samples": samples, "undefined": self.undefined}
