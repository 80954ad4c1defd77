"""Batches are read before the user's step, ids are indices of the data set or said to be none, streams stay whole."""

import own_trainers
import pytest
import torch
import torch.nn.functional as F
from hugging_face import quiet_arguments, small_sizes
from setting import data, loader, messages, module, monitor, trainer
from torch.utils.data import IterableDataset

import lrptrain
from lrptrain.callbacks import RelevanceMonitorCallback

pytestmark = pytest.mark.filterwarnings("ignore:.*has shuffling enabled")


def fitted(folder, val, pl_module=None, **options):
    watching = monitor(max_samples=24, on_error="raise", **options)
    trainer(folder, watching, max_epochs=1).fit(pl_module or module(), loader(), val)
    return watching


def scored(watching):
    return {
        each.sample.sample_id: (each.sample.label, each.values["label/energy_pointing_game"], each.maps["label"].sum())
        for each in watching.scored
    }


def test_what_a_step_changes_in_place_is_not_believed(tmp_path):
    def spoils(self, batch, batch_idx):
        self(batch["image"])
        batch["label"].zero_()
        batch["mask"].fill_(1)
        batch["image"].zero_()

    spoiling = module()
    type(spoiling).validation_step = spoils
    assert scored(fitted(tmp_path / "a", loader(), spoiling)) == scored(fitted(tmp_path / "b", loader()))


def test_samples_of_a_shuffled_loader_have_no_indices(tmp_path):
    with messages() as lines:
        watching = fitted(tmp_path, loader(shuffle=True))
    ids = [each.sample.sample_id for each in watching.scored]
    assert sorted(ids) == sorted(f"pass-{place}" for place in range(24))
    assert len([line for line in lines if "shuffled, and batches have no sample_id" in line]) == 1


class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows


class Queue(IterableDataset):
    """Goes on where it was left."""

    def __init__(self, rows):
        self.rows = iter(rows)

    def __iter__(self):
        return self.rows


def rows(times=1):
    return [{name: x[i] for name, x in ids_and_labels().items()} for i in range(24)] * times


def ids_and_labels():
    torch.manual_seed(3)
    rationale = torch.zeros(24, 6, dtype=torch.long)
    rationale[:, 2] = 1
    ids = torch.randint(5, 50, (24, 6))
    return {"input_ids": ids, "labels": torch.arange(24) % 2, "rationale": rationale}


def trained(folder, eval_dataset, *callbacks, evaluations=2):
    from transformers import BertConfig, BertForSequenceClassification, Trainer

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **small_sizes(16)))
    arguments = quiet_arguments(folder, num_train_epochs=evaluations, eval_strategy="epoch")
    training = [{name: x for name, x in row.items() if name != "rationale"} for row in rows()]
    runner = Trainer(model, arguments, train_dataset=training, eval_dataset=eval_dataset, callbacks=list(callbacks))
    runner.train()
    return [each["eval_loss"] for each in runner.state.log_history if "eval_loss" in each]


def test_a_stream_of_the_trainer_is_monitored_with_its_annotations(tmp_path):
    watching = RelevanceMonitorCallback(max_samples=24, run=lrptrain.Run(on_error="raise"), budget=None)
    with_monitor = trained(tmp_path / "a", Stream(rows()), watching)
    assert with_monitor == trained(tmp_path / "b", Stream(rows()))
    assert watching.scalars["relevance/samples"] == 24
    assert watching.scalars["relevance/chance"] == pytest.approx(1 / 6)
    assert [each.sample.sample_id for each in watching.scored][:3] == [0, 2, 4]


@pytest.mark.parametrize("fail_on", [None, "relies"])
def test_a_stream_that_can_be_read_once_is_left_to_the_trainer(fail_on, tmp_path):
    watching = RelevanceMonitorCallback(max_samples=24, judge=lrptrain.Judge(fail_on=fail_on))
    if fail_on is not None:
        with pytest.raises(ValueError, match="needs evaluations, but its eval_dataset can be read only once"):
            trained(tmp_path / "a", Queue(rows(2)), watching)
        return
    with pytest.warns(UserWarning, match="will evaluate nothing: its eval_dataset can be read only once"):
        with_monitor = trained(tmp_path / "a", Queue(rows(2)), watching, evaluations=1)
    assert with_monitor == trained(tmp_path / "b", Queue(rows(2)), evaluations=1)


def test_a_trainer_whose_loss_is_its_own(tmp_path, monkeypatch):
    """What `compute_loss` makes of the inputs is explained."""
    from transformers import Trainer

    class Doubling(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            output = model(2 * inputs["image"])
            loss = F.cross_entropy(output, inputs["labels"])
            return (loss, {"loss": loss, "logits": output}) if return_outputs else loss

    monkeypatch.setattr(own_trainers, "Trainer", Doubling)
    columns, model = {"image": data()["image"]}, own_trainers.Named()
    watching = own_trainers.in_transformers(tmp_path, model, columns, {})
    own = model.eval()(2 * columns["image"])
    other = model(columns["image"])
    assert not torch.allclose(own, other, atol=1e-4)
    found = {each.sample.sample_id: each.probabilities.tolist() for each in watching.scored}
    expected = own.double().softmax(1)
    torch.testing.assert_close(
        torch.tensor([found[i] for i in range(24)]), expected, atol=1e-5, rtol=0, check_dtype=False
    )
