"""What the user's own code gets wrong is a warning, and training goes on to the bit as without a monitor."""

import warnings

import pytest
import torch
from setting import data, loader, module, monitor, trainer, vit
from torch import nn

import lrptrain
from lrptrain.loggers import read_events


class WithoutGradients(nn.Module):
    """Answers in evaluation mode, but not where gradients are asked for."""

    def __init__(self, error):
        super().__init__()
        self.net, self.error = vit(), error

    def forward(self, image):
        if torch.is_grad_enabled() and not self.training:
            raise self.error
        return self.net(image)


class Unnamed(torch.utils.data.StackDataset):
    @property
    def classes(self):
        raise RuntimeError("the folder is not scanned yet")


class Batches(list):
    """Batches as an iterable, of which some are empty."""


def batches(*sizes):
    columns, start, found = data(), 0, Batches()
    for size in sizes:
        found.append({name: x[start : start + size] for name, x in columns.items()})
        start += size
    return found


def named(error):
    def raises(self):
        raise error

    def make():
        pl_module = module()
        type(pl_module).class_names = property(raises)
        return pl_module

    return make


FAULTS = {
    "class_names": (named(RuntimeError("not fitted")), loader, 0, "class_names of Classifier cannot be read"),
    "classes of the data": (
        module,
        lambda: torch.utils.data.DataLoader(Unnamed(**data()), batch_size=5),
        0,
        "classes of Unnamed cannot be read",
    ),
    "gradients": (
        lambda: module(net=WithoutGradients(RuntimeError("no gradients"))),
        loader,
        2,
        "failed while trying the first batch: RuntimeError: no gradients",
    ),
    "an empty first batch": (module, lambda: batches(0, 8, 8), 0, ""),
    "an empty batch amid others": (module, lambda: batches(8, 0, 8), 0, ""),
    "empty batches alone": (module, lambda: batches(0, 0), 1, "gave no samples"),
}


def trained(tmp_path, make, validation, *callbacks):
    torch.manual_seed(1)
    pl_module = make()
    runner = trainer(tmp_path, *callbacks, max_epochs=1)
    runner.fit(pl_module, loader(shuffle=True), validation())
    return runner, pl_module.state_dict()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_warning_and_no_step_differs(fault, tmp_path):
    make, validation, failures, message = FAULTS[fault]
    watching = monitor()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        runner, watched = trained(tmp_path / "a", make, validation, watching)
    assert any(message in str(each.message) for each in told)
    assert runner.global_step == 5
    assert (watching.failures > 0) == (failures > 0)
    if not failures:
        assert read_events(watching.folder)[-1]["scalars"]["relevance/samples"] == 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, plain = trained(tmp_path / "b", make, validation)
    assert all(torch.equal(plain[name], value) for name, value in watched.items())


def test_on_request_such_a_fault_ends_the_run(tmp_path):
    with pytest.raises(RuntimeError, match="no gradients"):
        trained(tmp_path, FAULTS["gradients"][0], loader, monitor(on_error="raise"))


def test_what_the_package_refuses_within_a_model_still_ends_a_run(tmp_path):
    """An output that is no logits is refused before the first step, wherever it is noticed."""

    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.vit = vit()

        def forward(self, image):
            return self.vit.forward_features(image)

    with pytest.raises(lrptrain.UnsupportedModelError):
        trained(tmp_path, lambda: module(net=Several()), loader, monitor())


def test_a_loop_says_that_gradients_are_what_fails(tmp_path):
    model = WithoutGradients(RuntimeError("no gradients")).eval()
    for call in (lambda: lrptrain.Monitor(model, loader(), tmp_path), lambda: lrptrain.inspect(model, loader())):
        with pytest.raises(ValueError, match=r"answers without gradients, and fails with them .*no gradients"):
            call()


class Noisy(nn.Module):
    """Adds noise of a generator that only a closure holds, or counts its calls there."""

    def __init__(self, is_noisy):
        super().__init__()
        self.net = vit()
        generator = torch.Generator().manual_seed(0)
        self.noise = lambda: torch.randn((), generator=generator) if is_noisy else 0.0

    def forward(self, image):
        return self.net(image + self.noise())


@pytest.mark.parametrize("is_noisy", [True, False])
def test_state_that_no_module_holds_is_told(is_noisy, tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lrptrain.Monitor(Noisy(is_noisy), loader(), tmp_path)
    assert any("changes something that no module holds" in str(each.message) for each in told) == is_noisy
