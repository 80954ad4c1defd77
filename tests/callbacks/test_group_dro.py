"""The callback GroupDRO: what it trains is what plain PyTorch trains, by the textbook's loss."""

import math

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, descended, explicit, fit, guidance, hand_loss, sgd_module, weights
from guided_loops import Labelled, hugging_face_trainer
from processes import one_and_two, result
from setting import data, loader, trainer, vit
from test_guidance_gradients import assert_close

import lrptrain
from lrptrain.callbacks import GroupDRO

STEP = 0.5


def grouped_data(samples=12):
    columns = data(samples)
    del columns["mask"]
    columns["image"] = columns["image"].double()
    columns["group"] = torch.arange(samples) % 3
    return columns


def by_hand(columns, size, extra=0.0, step=STEP):
    """The weights after gradient descent on the shares' loss, and the shares."""
    net = vit().double()
    shares = torch.full((4,), 0.25, dtype=torch.float64)
    for start in range(0, len(columns["label"]), size):
        image, label, group = (columns[name][start : start + size] for name in ("image", "label", "group"))
        losses = F.cross_entropy(net(image), label, reduction="none")
        means = {int(each): losses[group == each].mean() for each in group.unique()}
        for each, mean in means.items():
            shares[each] *= math.exp(step * mean.item())
        shares = shares / shares.sum()
        loss = sum(shares[each] * mean for each, mean in means.items()) + extra * net.head.weight.square().sum()
        net.load_state_dict(descended(net, loss))
    return weights(net), shares.tolist()


def test_a_module_trains_by_the_textbook(tmp_path):
    columns = grouped_data()
    expected, shares = by_hand(columns, 6)
    module = sgd_module()
    callback = GroupDRO(4, step_size=STEP)
    runner = fit(tmp_path, module, columns, callback)
    assert_close(weights(module.net), expected)
    assert callback.shares == pytest.approx(shares, rel=1e-9)
    logged = {name: value.item() for name, value in runner.callback_metrics.items()}
    assert [logged[f"group_dro/share_{group}"] for group in range(4)] == pytest.approx(shares, rel=1e-6)
    assert "group_dro/loss_2" in logged
    assert "group_dro/loss_3" not in logged
    assert "training_step" not in vars(module)
    again = sgd_module()
    fit(tmp_path, again, columns, callback)  # another training begins with equal shares
    assert_close(weights(again.net), expected)


def test_groups_may_be_a_function_of_the_batch_and_labels_come_in_a_tuple(tmp_path):
    columns = grouped_data()
    expected, _ = by_hand(columns, 6)
    module = sgd_module()
    module.training_step = lambda batch, batch_idx: F.cross_entropy(module(batch[0]), batch[1])
    dataset = torch.utils.data.TensorDataset(columns["image"], columns["label"], columns["group"])
    callback = GroupDRO(4, group=lambda batch: batch[2], step_size=STEP)
    trainer(tmp_path, callback, max_epochs=1).fit(module, torch.utils.data.DataLoader(dataset, 6))
    assert_close(weights(module.net), expected)


def test_validation_leaves_the_shares_as_they_are(tmp_path):
    columns = grouped_data()
    expected, shares = by_hand(columns, 6)
    module = sgd_module()
    type(module).validation_step = lambda self, batch, batch_idx: self.training_step(batch, batch_idx)
    callback = GroupDRO(4, step_size=STEP)
    trainer(tmp_path, callback, max_epochs=1).fit(module, loader(columns, 6), loader(columns, 6))
    assert callback.shares == pytest.approx(shares, rel=1e-9)
    assert_close(weights(module.net), expected)


def test_what_a_step_adds_to_its_mean_stays(tmp_path):
    columns = grouped_data()
    expected, _ = by_hand(columns, 6, extra=2.0)

    def penalised(batch, batch_idx):
        loss = F.cross_entropy(module(batch["image"]), batch["label"]) + 2.0 * module.net.head.weight.square().sum()
        return {"loss": loss}

    module = sgd_module()
    module.training_step = penalised
    with pytest.raises(ValueError, match="weights the cross-entropy of samples, whose mean is"):
        fit(tmp_path, module, columns, GroupDRO(4, step_size=STEP))

    def own(logits, label):
        return F.cross_entropy(logits, label, reduction="none")

    module = sgd_module()
    module.training_step = penalised
    fit(tmp_path, module, columns, GroupDRO(4, step_size=STEP, loss=own))
    assert_close(weights(module.net), expected)


def test_one_group_is_plain_training(tmp_path):
    columns = grouped_data()
    plain = sgd_module()
    fit(tmp_path, plain, columns)
    module = sgd_module()
    fit(tmp_path, module, columns, GroupDRO(1, group=lambda batch: torch.zeros_like(batch["label"])))
    assert_close(weights(module.net), weights(plain.net))


def test_a_resumed_run_is_the_run(tmp_path):
    columns = grouped_data()
    whole = sgd_module()
    first = GroupDRO(4, step_size=STEP)
    options = {"enable_checkpointing": True, "max_epochs": 2}
    fit(tmp_path / "whole", whole, columns, first, **options)
    half = sgd_module()
    runner = fit(tmp_path / "half", half, columns, GroupDRO(4, step_size=STEP), enable_checkpointing=True)
    resumed = sgd_module()
    second = GroupDRO(4, step_size=STEP)
    again = trainer(tmp_path / "half", second, **options)
    again.fit(resumed, loader(columns, 6), ckpt_path=runner.checkpoint_callback.best_model_path)
    assert_close(weights(resumed.net), weights(whole.net), 0.0)
    assert second.shares == first.shares


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"group": None}, {}, r"finds no 'group' in a batch with \['image', 'label'\]: group= names the entry"),
        ({}, {"group": "place"}, "finds no 'place'"),
        ({"label": None}, {}, "needs the label of every sample"),
        ({"label": torch.full((12,), -1)}, {}, "needs the label of every sample"),
        ({"group": torch.full((12,), 4)}, {}, "group 4 is none of the 4 groups"),
        ({}, {"group": lambda batch: batch["group"].double()}, "one loss and one integer, the group, per sample"),
        ({}, {"loss": F.cross_entropy}, "must return one loss per sample"),
    ],
)
def test_batches_that_cannot_be_used_are_refused_before_the_first_step(change, options, message, tmp_path):
    columns = {name: x for name, x in {**grouped_data(), **change}.items() if x is not None}
    module = sgd_module()
    module.training_step = lambda batch, batch_idx: F.cross_entropy(
        module(batch["image"]), batch.get("label", torch.zeros(6)).long().clamp(min=0)
    )
    before = weights(module.net)
    with pytest.raises(ValueError, match=message) as error:
        fit(tmp_path, module, columns, GroupDRO(4, **options))
    assert "\n" not in str(error.value)
    assert_close(weights(module.net), before, 0.0)


def test_manual_optimisation_is_refused(tmp_path):
    module = sgd_module()
    module.automatic_optimization = False
    with pytest.raises(ValueError, match="optimises manually"):
        fit(tmp_path, module, grouped_data(), GroupDRO(4))


def test_guidance_adds_to_it_and_comes_after_it(tmp_path):
    columns = annotated_data(6) | {"group": torch.arange(6) % 3}
    module = sgd_module()
    robust = GroupDRO(4, step_size=STEP)
    fit(tmp_path, module, columns, robust, guidance("energy"))
    net = explicit(vit().double())
    losses = F.cross_entropy(net(columns["image"]), columns["label"], reduction="none")
    means = torch.stack([losses[columns["group"] == group].mean() for group in range(3)])
    shares = torch.cat([0.25 * (STEP * means.detach()).exp(), torch.tensor([0.25]).double()])
    shares = shares / shares.sum()
    loss = (shares[:3] * means).sum() + hand_loss(net, columns, "energy")
    assert_close(weights(module.net), descended(net, loss))
    assert robust.shares == pytest.approx(shares.tolist(), rel=1e-9)
    with pytest.raises(ValueError, match="list GroupDRO first"):
        fit(tmp_path, sgd_module(), columns, guidance("energy"), GroupDRO(4))


def test_one_logit(tmp_path):
    columns = grouped_data()
    columns["label"] %= 2
    net = vit(num_classes=1).double()
    module = sgd_module(net)
    module.training_step = lambda batch, batch_idx: F.binary_cross_entropy_with_logits(
        module(batch["image"])[:, 0], batch["label"].double()
    )
    fit(tmp_path, module, columns, GroupDRO(1, group=lambda batch: torch.zeros_like(batch["label"])))
    plain = sgd_module(vit(num_classes=1).double())
    plain.training_step = lambda batch, batch_idx: F.binary_cross_entropy_with_logits(
        plain(batch["image"])[:, 0], batch["label"].double()
    )
    fit(tmp_path, plain, columns)
    assert_close(weights(module.net), weights(plain.net))


class Summed(Labelled):
    """A model that takes `num_items_in_batch`, of which the Trainer accumulates sums."""

    def forward(self, pixel_values, labels=None, num_items_in_batch=None, **kwargs):
        logits = self.net(pixel_values)
        total = F.cross_entropy(logits, labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels)), "logits": logits}


def hugging_face_run(columns, at, accumulate=1, resumes="", groups=4, kind=Labelled, **arguments):
    """A training by the Trainer of transformers: its weights, its group DRO and its trainer."""
    net = vit().double()
    sizes = {"per_device_train_batch_size": 6 // accumulate, "gradient_accumulation_steps": accumulate}
    runner = hugging_face_trainer(kind(net), columns, at, **sizes, **arguments)
    training = lrptrain.group_dro(runner, groups, step_size=STEP)
    runner.train(resume_from_checkpoint=resumes or None)
    return weights(net), training, runner


def test_the_trainer_of_transformers_trains_by_the_textbook(tmp_path):
    columns = grouped_data()
    expected, shares = by_hand(columns, 6)
    found, training, runner = hugging_face_run(columns, tmp_path)
    assert_close(found, expected)
    assert training.robust.shares == pytest.approx(shares, rel=1e-9)
    logs = [row for row in runner.state.log_history if "loss" in row]
    assert all("group_dro/share_3" in row for row in logs)
    with pytest.raises(ValueError, match="no other guidance"):
        lrptrain.group_dro(runner, 4)


def test_the_trainer_of_transformers_accumulates_and_goes_on(tmp_path):
    columns = grouped_data()
    saving = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 2}
    whole, training, _ = hugging_face_run(columns, tmp_path, accumulate=2, **saving)
    again, resumed, _ = hugging_face_run(columns, tmp_path, 2, str(tmp_path / "checkpoint-2"), **saving)
    assert_close(again, whole, 0.0)
    assert resumed.robust.shares == training.robust.shares
    # One group, whose share does not move: the loss of a step is a mean over its accumulated batches.
    columns["group"] = torch.zeros(12, dtype=torch.long)
    one, _, _ = hugging_face_run(columns, tmp_path, groups=1)
    for kind in (Labelled, Summed):
        two, _, _ = hugging_face_run(columns, tmp_path, accumulate=2, groups=1, kind=kind)
        assert_close(two, one)


def test_the_trainer_of_transformers_wants_its_column(tmp_path):
    columns = grouped_data()
    del columns["group"]
    with pytest.raises(ValueError, match="group_dro finds no 'group' in a batch"):
        hugging_face_run(columns, tmp_path)


def test_two_processes_train_as_one_does(tmp_path):
    one, two = one_and_two(tmp_path, "group_dro_ddp_script.py")
    expected = result(one, "shares")
    for rank in (0, 1):
        assert result(two, "shares", rank) == pytest.approx(expected, rel=1e-9)
        assert_close(torch.load(two / f"state-{rank}.pt"), torch.load(one / "state-0.pt"))
