"""What guidance must not do to a run: end it, spoil its buffers, remember another run."""

import gc

import pytest
import torch
import torch.nn.functional as F
from guided import FEW, annotated_data, fit, guidance, sgd_module, stepped, weights
from setting import loader, trainer, vit
from torch import nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.relevance.passes import interception, recording


class Normalised(nn.Module):
    """A ViT behind a batch norm, whose statistics the task's graph holds."""

    def __init__(self):
        super().__init__()
        self.norm, self.vit = nn.BatchNorm2d(3).double(), vit().double()

    def forward(self, image):
        return self.vit(self.norm(image))


@pytest.mark.parametrize(("losses", "rows"), [("consistency", None), ("energy", None), ("energy", FEW)])
def test_a_batch_norm_takes_its_statistics_from_the_task_alone(losses, rows, tmp_path):
    columns = annotated_data(rows=rows)
    plain, guided = sgd_module(Normalised()), sgd_module(Normalised())
    fit(tmp_path, plain, columns)
    fit(tmp_path, guided, columns, guidance(losses, compare_every_n_batches=1))
    for name, buffer in plain.net.named_buffers():
        assert torch.equal(buffer, guided.net.get_buffer(name)), name
    pairs = zip(weights(plain).values(), weights(guided).values(), strict=True)
    assert any(not torch.equal(weight, other) for weight, other in pairs)


def test_frozen_parts_stay_in_evaluation_mode(tmp_path):
    seen = []
    net = Normalised()
    net.norm.register_forward_hook(lambda module, *_: seen.append(module.training))
    pl_module = sgd_module(net)
    pl_module.on_train_epoch_start = net.norm.eval
    fit(tmp_path, pl_module, annotated_data(), guidance("consistency"))
    assert seen
    assert not any(seen)


def test_a_validation_step_that_calls_the_training_step_is_not_guided(tmp_path):
    columns, found = annotated_data(), []
    expected = stepped(tmp_path, guidance({"swap": 1.0}), columns)
    pl_module = sgd_module()

    def validation_step(self, batch, batch_idx):
        found.append((self.training_step(batch, batch_idx), F.cross_entropy(self.net(batch["image"]), batch["label"])))

    type(pl_module).validation_step = validation_step
    runner = trainer(tmp_path, guidance({"swap": 1.0}), max_epochs=1)
    runner.fit(pl_module, loader(columns, 6), loader(columns, 6))
    assert len(found) == 2  # the sanity check, and the epoch's
    assert all(torch.equal(one, other) for one, other in found)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(pl_module.net).items())


def test_a_second_run_starts_over(tmp_path):
    callback, columns = guidance("energy", weight=None), annotated_data()
    fit(tmp_path, sgd_module(), columns, callback)
    assert callback.guidance.state.strength.factor is not None
    columns["mask"] = torch.full_like(columns["mask"], IGNORED)
    with pytest.raises(ValueError, match="no sample of the first guided batch has an annotation"):
        fit(tmp_path, sgd_module(), columns, callback)


def test_a_recording_that_fails_keeps_no_graph(tmp_path, monkeypatch):
    """Without the garbage collector: nothing of a failed step is left at the start of the next."""
    forward = recording.forward_on_tape
    alive: list[int] = []

    def failing(*arguments, **options):
        if len(alive) > 1:
            raise RuntimeError("only here")
        return forward(*arguments, **options)

    monkeypatch.setattr(interception, "forward_on_tape", failing)
    pl_module = sgd_module()
    step = pl_module.training_step

    def counted(batch, batch_idx):
        tensors = [
            each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and each.grad_fn is not None
        ]
        alive.append(len(tensors))
        return step(batch, batch_idx)

    pl_module.training_step = counted
    gc.collect()
    gc.disable()
    try:
        with pytest.warns(UserWarning, match="only here"):
            fit(tmp_path, pl_module, annotated_data(12), guidance("energy", on_error="warn"), batch_size=2)
    finally:
        gc.enable()
    assert len(set(alive[2:])) == 1, alive


def test_sparse_gradients(tmp_path):
    net = nn.Sequential(vit().double())
    pl_module = sgd_module(net)
    pl_module.extra = nn.Embedding(4, 3, sparse=True).double()
    step = pl_module.training_step
    pl_module.training_step = lambda batch, batch_idx: (
        step(batch, batch_idx) + pl_module.extra(batch["label"]).square().mean()
    )
    pl_module.configure_optimizers = lambda: torch.optim.SGD(pl_module.parameters(), lr=0.1)
    fit(tmp_path, pl_module, annotated_data(), guidance("consistency", model="net"))
    assert all(x.isfinite().all() for x in weights(pl_module).values())
