"""What is guided, how much, what is logged, and that a run goes on where it stopped."""

import pytest
import torch
from examples import assert_same
from guided import RATE, annotated_data, by_hand, explicit, fit, guidance, hand_loss, sgd_module, stepped, weights
from pytorch_lightning import Callback, seed_everything
from setting import Points, loader, no_graph_left, trainer, vit
from test_guidance_gradients import assert_close

SINGLE = 1e-4  # of sums of n = 25,000 float32 squares, whose rounding errors grow like sqrt(n) 6e-8 = 1e-5


def logged(callback, columns, folder, net=None, **options):
    """What the callback logs in every batch; Lightning's loggers repeat values that are not measured in each."""
    points, rows = Points(), []
    finish = callback.guidance.state.finish

    def finished(values):
        finish(values)
        rows.append(callback.guidance.values)

    callback.guidance.state.finish = finished
    fit(folder, sgd_module(net), columns, callback, logger=points, log_every_n_steps=1, **options)
    assert rows[0].keys() <= points.rows[0][1].keys()
    return rows


def test_what_is_logged(tmp_path):
    columns = annotated_data(12, rows=tuple(range(0, 12, 2)))
    first, second = logged(guidance({"energy": 1.0, "l1": 3.0}, weight=0.5), columns, tmp_path)
    names = {"energy", "l1", "samples", "failures", "skipped", "left_out", "applied_weight", "total"}
    assert second.keys() == {f"guidance/{name}" for name in names}
    assert first.keys() == second.keys() | {"guidance/norm_ratio", "guidance/swap_distance"}
    batch = {name: x[:6] for name, x in columns.items()}
    net = explicit(vit().double())
    energy, l1 = (hand_loss(net, batch, name) for name in ("energy", "l1"))
    assert first["guidance/energy"] == pytest.approx(energy.item(), rel=1e-9)
    assert first["guidance/l1"] == pytest.approx(l1.item(), rel=1e-9)
    assert first["guidance/samples"] == 3
    expected = 0.5 * second["guidance/energy"] + 1.5 * second["guidance/l1"]
    assert second["guidance/total"] == pytest.approx(expected, rel=1e-9)
    parameters = list(net.parameters())
    task = torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])
    pulls = []
    for loss in (task, 0.5 * energy + 1.5 * l1):
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        pulls.append(
            torch.cat(
                [
                    torch.zeros(p.numel()) if g is None else g.flatten()
                    for p, g in zip(parameters, gradients, strict=True)
                ]
            )
        )
    assert first["guidance/norm_ratio"] == pytest.approx((pulls[1].norm() / pulls[0].norm()).item(), rel=SINGLE)


def test_so_many_samples_of_a_batch(tmp_path):
    rows = logged(guidance(max_samples=2), annotated_data(12), tmp_path)
    assert [row["guidance/samples"] for row in rows] == [2, 2]
    two = annotated_data(rows=(0, 1))
    guided = stepped(tmp_path, guidance(weight=0.5, max_samples=2), annotated_data())
    assert_close(guided, by_hand(two, names="energy"))


def resumable(folder, epochs, checkpoint=None):
    """A run of some epochs of four, and everything that it leaves behind."""
    seed_everything(0, verbose=False)
    pl_module = sgd_module(vit(proj_drop_rate=0.2))
    pl_module.configure_optimizers = lambda: torch.optim.AdamW(pl_module.parameters(), lr=1e-3)
    guided = guidance("consistency+energy", weight=None, compare_every_n_batches=2)

    class Stop(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            trainer.should_stop = trainer.should_stop or trainer.current_epoch + 1 == epochs

    options = {"max_epochs": 4}
    runner = trainer(folder, guided, Stop(), **options)
    columns = annotated_data(18, rows=tuple(range(0, 18, 3)), dtype=torch.float32)
    if checkpoint is not None:
        torch.set_rng_state(torch.load(checkpoint.with_suffix(".rng")))
    runner.fit(pl_module, loader(columns, 6), ckpt_path=checkpoint)
    runner.save_checkpoint(folder / "end.ckpt")
    torch.save(torch.get_rng_state(), folder / "end.rng")
    state = {
        "weights": pl_module.state_dict(),
        "optimizer": runner.optimizers[0].state_dict(),
        "own": guided.state_dict(),
    }
    return state, runner.current_epoch


def test_a_resumed_run_is_the_whole_run(tmp_path):
    for name in ("whole", "half", "resumed"):
        (tmp_path / name).mkdir()
    uninterrupted, epochs = resumable(tmp_path / "whole", 4)
    half, stopped = resumable(tmp_path / "half", 2)
    resumed, ended = resumable(tmp_path / "resumed", 4, tmp_path / "half" / "end.ckpt")
    assert (epochs, stopped, ended) == (4, 2, 4)
    assert uninterrupted["own"]["factor"] != half["own"]["factor"]
    assert_same(uninterrupted, resumed)


@pytest.mark.parametrize("shadowed", [False, True])
def test_the_module_is_left_as_it_was(shadowed, tmp_path):
    columns, pl_module, guided = annotated_data(), sgd_module(), guidance()
    if shadowed:
        pl_module.training_step = type(pl_module).training_step.__get__(pl_module)
    fit(tmp_path, pl_module, columns, max_epochs=0)
    before = [dict(vars(module)) for module in pl_module.modules()]
    fit(tmp_path, pl_module, columns, guided, max_epochs=0)
    for each, attributes in zip(pl_module.modules(), before, strict=True):
        assert vars(each).keys() == attributes.keys()
        assert all(vars(each)[name] is attributes[name] for name in attributes if name in ("training_step", "forward"))
    fit(tmp_path, pl_module, columns, guided)
    after_one = weights(pl_module)
    assert vars(pl_module).keys() == before[0].keys()
    fit(tmp_path, pl_module, columns, guided)
    assert max((weights(pl_module)[name] - x).abs().max() for name, x in after_one.items()) > RATE * 1e-3
    type(pl_module).on_train_batch_end = lambda self, *args: 1 / 0
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, pl_module, columns, guided)
    assert vars(pl_module).keys() == before[0].keys()
    assert not torch.overrides._get_current_function_mode_stack()


def test_an_error_in_the_backward_pass_leaves_no_mode_behind(tmp_path):
    pl_module = sgd_module()
    type(pl_module).backward = lambda self, loss: 1 / 0
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, pl_module, annotated_data(), guidance())
    assert not torch.overrides._get_current_function_mode_stack()
    assert "training_step" not in vars(pl_module)


def test_nothing_of_a_step_stays_alive(tmp_path):
    with no_graph_left():
        guided = guidance("consistency+energy+rrr")
        fit(tmp_path, sgd_module(), annotated_data(), guided)
