"""Series of channels over time: monitored under each trainer, and guided."""

from typing import Any

import pytest
import torch
from own_trainers import TRAINERS, answered
from torch import Tensor, nn

import lrptrain

N, CHANNELS, TIME, PATCH = 64, 3, 64, 8
SIGNAL, TAG = (0, 5), (1, 2)
"""A channel, and which patch of it."""


class Patched(nn.Module):
    """A last layer on the means of patches of each channel, of which it reads one."""

    def __init__(self, reads: tuple[int, int], time_first: bool = False):
        super().__init__()
        self.time_first = time_first
        self.patches = nn.Conv1d(CHANNELS, CHANNELS, PATCH, PATCH, groups=CHANNELS)
        self.head = nn.Linear(CHANNELS * TIME // PATCH, 2)
        nn.init.constant_(self.patches.weight, 1 / PATCH)
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]
        nn.init.zeros_(self.head.weight)
        self.head.weight.data.view(2, CHANNELS, -1)[:, reads[0], reads[1]] = torch.tensor([-20.0, 20.0])
        self.head.bias.data = torch.tensor([10.0, -10.0])

    def forward(self, signal: Tensor, labels: Tensor | None = None) -> Any:
        return answered(self.head(self.patches(signal.mT if self.time_first else signal).flatten(1)), labels)


def signals(time_first: bool = False) -> dict[str, Tensor]:
    """Signals whose class stands in two patches, of which one is annotated."""
    label = torch.arange(N) % 2
    signal = 0.1 * torch.randn(N, CHANNELS, TIME, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(N, TIME, dtype=torch.uint8)
    mask[:, 40:48] = 1
    for channel, patch in (SIGNAL, TAG):
        signal[:, channel, patch * PATCH : (patch + 1) * PATCH] += label[:, None]
    return {"signal": signal.mT if time_first else signal, "mask": mask, "label": label}


@pytest.mark.parametrize(("train", "time_first"), [(train, i > 1) for i, train in enumerate(TRAINERS)])
def test_a_tag_in_one_channel_is_a_fault_under_every_trainer(train, time_first, tmp_path):
    monitor = train(tmp_path, Patched(TAG, time_first), signals(time_first), {"explain": "signal"})
    assert [each.name for each in monitor.faults] == ["channel 1 in the second quarter of the series"]
    assert monitor.scalars["relevance/label/energy_pointing_game"] < 0.2
    assert monitor.scalars["relevance/chance"] == pytest.approx(8 / TIME)
    assert not monitor.failures


def test_a_model_of_the_signal_has_no_fault():
    columns = signals()
    report = lrptrain.inspect(Patched(SIGNAL), [(columns["signal"], columns["label"], columns["mask"])])
    assert not report.faults
    del columns["mask"]
    report = lrptrain.inspect(Patched(SIGNAL), [columns], explain="signal")
    assert [each.name for each in report.to_review] == ["channel 0 in the third quarter of the series"]


def test_what_is_read_in_a_whole_channel_is_the_channel():
    net, columns = Patched(TAG), signals()
    net.head.weight.data.view(2, CHANNELS, -1)[:, 2] = torch.tensor([-6.0, 6.0])[:, None]
    net.head.weight.data.view(2, CHANNELS, -1)[:, 1] = 0
    net.head.bias.data = torch.tensor([24.0, -24.0])  # half of it: no quarter decides alone
    columns["signal"][:, 2] += columns["label"][:, None]
    report = lrptrain.inspect(net, [(columns["signal"], columns["label"])])
    assert [each.name for each in report.to_review] == ["channel 2"]
    assert report.to_review[0].relevance is None, "a map has no number for a channel"


def test_series_of_several_lengths_are_explained_and_a_line_says_what_is_not_tested():
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.head = nn.Conv1d(CHANNELS, 4, PATCH, PATCH), nn.Linear(4, 2)

        def forward(self, signal: Tensor) -> Tensor:
            return self.head(self.patches(signal).mean(2))

    torch.manual_seed(0)
    batches = [{"image": torch.randn(16, CHANNELS, 8 * n), "label": torch.arange(16) % 2} for n in (4, 5)]
    report = lrptrain.inspect(Pooled(), batches)
    assert "parts of series, which need to be equally long" in report.untested


@pytest.mark.parametrize(
    ("loss", "time_first"), [("swap", True), ("consistency", False), ("energy", True), ("rrr", False)]
)
def test_guidance_goes_by_what_is_annotated_of_the_time(loss, time_first):
    columns, net = signals(time_first), Patched(TAG, time_first)
    seen: list[Tensor] = []
    net.patches.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    options: dict[str, Any] = {} if loss == "swap" else {"weight": 1.0, "method": "attnlrp"}
    guidance = lrptrain.Guidance(loss, explain="signal", optimizer=optimizer, on_error="raise", **options)
    with guidance.step(net, columns) as step:
        step.guided(nn.functional.cross_entropy(net(columns["signal"]), columns["label"])).backward()
    given = columns["signal"].mT if time_first else columns["signal"]
    changed = seen[0 if loss == "swap" else -1]
    if loss in ("swap", "consistency"):
        assert torch.equal(changed[..., 40:48], given[..., 40:48])
        assert not torch.equal(changed, given)
    if loss != "swap":
        assert guidance.values[f"guidance/{loss}"] > 0.01


def test_a_mask_of_other_steps_than_the_series_has_is_refused():
    series, label = torch.randn(N, CHANNELS, TIME), torch.arange(N) % 2
    batch = {"image": series, "label": label, "mask": torch.ones(N, TIME - 1)}
    with pytest.raises(ValueError, match=r"'mask' \[1, 63\] must mark steps of the series \[1, 3, 64\]"):
        lrptrain.inspect(Patched(TAG), [batch])
