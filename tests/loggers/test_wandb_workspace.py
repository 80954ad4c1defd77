"""The workspace is what W&B's own library reads back; nothing is sent."""

import warnings

import pytest
from examples import keep_wandb_offline

from lrptrain.cli import main
from lrptrain.loggers.wandb_workspace import make_workspace, save_workspace
from lrptrain.monitor.summary import logged_metrics


@pytest.fixture(scope="module")
def read_back():
    """Built, written as the JSON that W&B keeps, and read again."""
    built = make_workspace("team/digits", logged_metrics(), name="lrp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from wandb_workspaces.workspaces import internal

        written = built._to_model().model_dump_json(by_alias=True)
        return type(built)._from_model(internal.View.model_validate_json(written))


def keys(workspace):
    panels = [panel for section in workspace.sections for panel in section.panels]
    lists = [getattr(panel, name, None) or [] for panel in panels for name in ("y", "media_keys")]
    single = [getattr(panel, name, None) for panel in panels for name in ("metric_regex", "table_name")]
    return {getattr(key, "name", key) for own in lists for key in own} | {key for key in single if key}


def test_it_has_what_the_monitor_logs(read_back):
    assert (read_back.entity, read_back.project, read_back.name) == ("team", "digits", "Relevance")
    assert [section.name for section in read_back.sections[:3]] == ["Where it looks", "Findings", "Samples"]
    assert read_back.settings.x_axis == "trainer/global_step"
    shown = keys(read_back)
    assert all(key.startswith(("relevance/lrp/", "guidance/")) for key in shown)
    ends = {key.removeprefix("relevance/lrp/") for key in shown}
    assert ends >= {"label/energy_pointing_game", "chance", "reliance", "any_reliance", "findings"}
    assert ends >= {"overlays", "highlights", "cost_share", "label/energy_pointing_game_per_class/.+"}


def test_the_tables_are_those_that_are_logged():
    written = str(make_workspace("team/digits", logged_metrics())._to_model().model_dump(by_alias=True))
    for name in ("findings_table", "samples", "scores_table"):
        assert f"relevance/{name}" in written


@pytest.mark.parametrize("project", ["digits", "team/", "a/b/c", ""])
def test_a_project_has_an_entity(project):
    with pytest.raises(ValueError, match="project must be ENTITY/PROJECT"):
        make_workspace(project, [])


def test_without_a_key_it_says_how_to_get_one(tmp_path, monkeypatch):
    keep_wandb_offline(monkeypatch, tmp_path)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="there is no key for one: run `wandb login` first"):
        save_workspace("team/digits", logged_metrics())


def test_the_command_says_it_in_one_line(tmp_path, monkeypatch):
    keep_wandb_offline(monkeypatch, tmp_path)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(SystemExit, match="lrptrain: a workspace is saved in your W&B account"):
        main(["wandb-workspace", "team/digits", "--name=lrp"])
