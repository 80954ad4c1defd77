"""The sample that real trainers give the monitor."""

import pytest
from pytorch_lightning.callbacks import EarlyStopping
from setting import data, loader, messages, module, monitor, trainer
from torch.utils.data import DataLoader, IterableDataset

from lrptrain.loggers import read_samples
from lrptrain.monitor.judging import FindingError


def ids(tmp_path, columns=None, batch_size=5, loaders=None, options=None, **trainer_options):
    """The ids in each epoch."""
    watching = monitor(on_error="raise", max_pictures=0, **{"run_name": None, **(options or {})})
    runner = trainer(tmp_path, watching, **{"max_epochs": 1, **trainer_options})
    runner.fit(module(), loader(), loader(columns, batch_size) if loaders is None else loaders)
    rows = read_samples(watching.folder)
    return [
        [i for i, epoch in zip(rows["sample_id"], rows["epoch"], strict=True) if epoch == e]
        for e in sorted(set(rows["epoch"]))
    ]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The sample that all others are compared with."""
    first, second = ids(tmp_path_factory.mktemp("usual"), max_epochs=2)
    assert first == second
    return first


def test_it_is_fixed_stratified_and_does_not_depend_on_the_batch_size(tmp_path, usual):
    first = usual
    assert [sorted(data()["label"][i].item() for i in first).count(c) for c in range(3)] == [3, 3, 2]
    assert ids(tmp_path, batch_size=24) == ids(tmp_path, batch_size=1, num_sanity_val_steps=0) == [first]
    assert ids(tmp_path, options={"seed": 1})[0] != first


class Stream(IterableDataset):
    def __iter__(self):
        columns = data()
        for i in range(24):
            yield {name: column[i] for name, column in columns.items()}


@pytest.mark.parametrize("limit", [1.0, 4, 50])
def test_a_stream_of_unknown_length(limit, tmp_path, usual):
    stream = DataLoader(Stream(), batch_size=5)
    (first, second) = ids(tmp_path, loaders=stream, limit_val_batches=limit, max_epochs=2)
    assert first == second
    assert len(first) == 8
    if limit != 4:
        assert first == usual


def test_one_of_two_dataloaders(tmp_path, usual):
    loaders = [loader(data(9, seed=5)), loader()]
    assert ids(tmp_path, loaders=loaders, options={"dataloader_idx": 1}) == [usual]
    assert max(ids(tmp_path, loaders=loaders)[0]) < 9


def test_without_labels_the_predicted_class_is_explained(tmp_path):
    columns = {name: data()[name] for name in ("image", "mask")}
    watching = monitor(on_error="raise")
    runner = trainer(tmp_path, watching)
    pl_module = module()
    runner.fit(pl_module, loader(), loader(columns))
    assert {tuple(one.maps) for one in watching.scored} == {("predicted",)}
    assert "relevance/predicted/energy_pointing_game" in runner.callback_metrics
    assert "relevance/accuracy" not in runner.callback_metrics


def test_some_labels_may_be_missing(tmp_path):
    label = data()["label"]
    label[::3] = -100
    watching = monitor(on_error="raise", max_samples=24)
    runner = trainer(tmp_path, watching)
    runner.fit(module(), loader(), loader({**data(), "label": label}))
    assert [one.sample.label for one in watching.scored].count(-1) == 8
    assert {tuple(one.maps) for one in watching.scored if one.sample.label >= 0} == {("label", "predicted")}
    assert read_samples(watching.folder)["map_label"].count(None) == 16
    share = [one.values["label/energy_pointing_game"] for one in watching.scored if one.sample.label >= 0]
    logged = runner.callback_metrics["relevance/label/energy_pointing_game"]
    assert logged.item() == pytest.approx(sum(share) / len(share), abs=1e-6)


def test_fast_dev_run(tmp_path):
    watching = monitor(on_error="raise")
    trainer(tmp_path, watching, fast_dev_run=True).fit(module(), loader(), loader())
    assert len(watching.scored) == 5


def test_training_that_ends_before_the_first_validation(tmp_path):
    with pytest.warns(UserWarning, match="RelevanceMonitor evaluated nothing in this run"):
        trainer(tmp_path, monitor(on_error="raise"), max_steps=1).fit(module(), loader(), loader())
    gated = monitor(fail_on="relies")
    message = "evaluated nothing in this run, so that its gate cannot pass"
    with pytest.raises(FindingError, match=message), pytest.warns(UserWarning, match="evaluated nothing"):
        trainer(tmp_path, gated, max_steps=1).fit(module(), loader(), loader())


def test_values_that_are_computed_now_and_then_are_announced_to_what_watches_them(tmp_path):
    stops = EarlyStopping("relevance/chance", patience=9)
    with messages() as lines:
        trainer(tmp_path, monitor(every_n_epochs=3), stops, max_epochs=1).fit(module(), loader(), loader())
    assert sum("EarlyStopping will see each value of RelevanceMonitor in 3 epochs" in line for line in lines) == 1
    with messages() as lines:
        trainer(tmp_path, monitor(), stops, max_epochs=1).fit(module(), loader(), loader())
    assert not any("will see each value" in line for line in lines)
