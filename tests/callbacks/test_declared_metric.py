"""A metric that is declared in one place is in the scalars, W&B, its workspace and the page of a real run."""

import json
import warnings
from pathlib import Path

import pytest
from examples import keep_wandb_offline, wandb_records
from pytorch_lightning.loggers import WandbLogger
from setting import loader, module, monitor, trainer

from lrptrain.dashboard.runs import about_run, read_new_events
from lrptrain.loggers.wandb_workspace import make_workspace
from lrptrain.monitor import summary
from lrptrain.monitor.summary import SampleMetric


def mean_confidence(scored, class_names):
    return {"certainty": sum(each.probability for each in scored) / len(scored)}


CONFIDENCE = SampleMetric(
    ("certainty",),
    "Probability of the predicted class",
    "Where it looks",
    higher_is_better=True,
    bounds=(0, 1),
    compute=mean_confidence,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of the monitor's record, what W&B has, and the workspace."""
    folder = tmp_path_factory.mktemp("declared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "METRICS", (*summary.METRICS, CONFIDENCE))
        keep_wandb_offline(patch, folder)
        logger = WandbLogger(save_dir=folder, project="relevance")
        watching = monitor(on_error="raise")
        trainer(folder, watching, logger=[logger], log_every_n_steps=1).fit(module(), loader(), loader())
        logger.experiment.finish()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            workspace = make_workspace("team/digits", summary.logged_metrics())
    records = wandb_records(next((folder / "wandb").glob("offline-run-*")))
    return Path(watching.folder), records, workspace


def test_it_is_among_the_scalars_of_the_run(run):
    events = read_new_events(run[0])["events"]
    assert len(events) == 2
    assert all(1 / 3 <= event["scalars"]["relevance/certainty"] <= 1 for event in events)


def test_wandb_keeps_its_best_value(run):
    updates = [record["summary"]["update"] for record in run[1] if record["type"] == "summary"]
    kept = {key: value for update in updates for key, value in update.items()}["relevance/certainty"]
    assert kept.keys() == {"max", "last"}
    assert kept["max"] >= kept["last"]


def test_the_workspace_has_a_panel_with_its_title(run):
    panels = {panel.title: panel for section in run[2].sections for panel in section.panels if hasattr(panel, "title")}
    lines = panels["Probability of the predicted class"].y
    assert [getattr(key, "name", key) for key in lines] == ["relevance/certainty"]


def test_the_page_knows_its_title_unit_and_direction(run):
    metrics = {metric["title"]: metric for metric in about_run(run[0])["settings"]["metrics"]}
    about = metrics["Probability of the predicted class"]
    assert (about["keys"], about["higher_is_better"], about["unit"], about["bounds"]) == (
        ["certainty"],
        True,
        "share",
        [0, 1],
    )
    assert "compute" not in about
    json.dumps(about, allow_nan=False)


def test_every_scalar_of_a_run_is_declared(run):
    scalars = read_new_events(run[0])["events"][-1]["scalars"]
    declared = [*summary.logged_metrics(), CONFIDENCE]
    unknown = [key for key in scalars if not any(each.matches(key.removeprefix("relevance/")) for each in declared)]
    assert unknown == []
