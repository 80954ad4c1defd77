"""A W&B workspace for a project's monitored runs, made by code."""

import warnings
from typing import Any

from lrptrain.extras import require
from lrptrain.loggers.wandb import logged_in

_STEP = "trainer/global_step"
_MEASURES = ("energy_pointing_game", "pointing_game", "rank_accuracy", "auprc")


def wandb_workspace(project: str, name: str | None = None, title: str = "Relevance") -> None:
    """Save a workspace view for monitored runs in a W&B project, and print its address.

    It has what the monitor logs, in sections: where the model looks, findings, samples, classes, guidance and cost.

    Args:
        project: `ENTITY/PROJECT`, as in the project's address.
        name: Of the monitor, where it has one (`RelevanceMonitor(name=...)`).
        title: Of the view.

    Raises:
        ImportError: If wandb-workspaces is not installed.
        ValueError: If the project is not named so, there is no key, or W&B does not take the view.
    """
    view = make_workspace(project, name, title)
    if not logged_in():
        raise ValueError(
            "a workspace is saved in your W&B account, and there is no key for one: run `wandb login` first"
        )
    try:
        print(view.save().url)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"W&B did not take the workspace of {project!r}: {type(error).__name__}: {said}") from error


def make_workspace(project: str, name: str | None = None, title: str = "Relevance") -> Any:
    """The same workspace as an object of wandb-workspaces, to be changed or saved; nothing is sent.

    Raises:
        ImportError: If wandb-workspaces is not installed.
        ValueError: If the project is not named `ENTITY/PROJECT`.
    """
    parts = project.split("/")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"project must be ENTITY/PROJECT, as in the project's address, not {project!r}")
    workspaces, panels = _libraries()
    sections = [
        workspaces.Section(name=heading, panels=shown, is_open=opened)
        for heading, opened, shown in _sections(panels, f"relevance/{name}" if name else "relevance")
    ]
    settings = workspaces.WorkspaceSettings(x_axis=_STEP, ignore_outliers=False)
    return workspaces.Workspace(
        entity=parts[0], project=parts[1], name=title, sections=sections, settings=settings, auto_generate_panels=True
    )


def _libraries() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is written for an older pydantic, which says so
        return tuple(require(f"wandb_workspaces.{part}", "workspace") for part in ("workspaces", "reports.v2"))  # type: ignore[return-value]


def _sections(panels: Any, prefix: str) -> list[tuple[str, bool, list[Any]]]:
    def lines(title: str, *keys: str, of: str = prefix) -> Any:
        return panels.LinePlot(title=title, x=_STEP, y=[f"{of}/{key}" for key in keys])

    def matching(title: str, pattern: str) -> Any:
        return panels.LinePlot(title=title, x=_STEP, metric_regex=f"{prefix}/{pattern}")

    targets = {"label": "the label", "predicted": "the prediction"}
    focus = lines("Relevance on the annotation, and its area", *(f"{own}/{_MEASURES[0]}" for own in targets), "chance")
    others = [lines(measure.replace("_", " "), *(f"{own}/{measure}" for own in targets)) for measure in _MEASURES[1:]]
    found = [
        lines("Severity of the gravest finding", "severity"),
        lines("Findings", "findings", "findings/confirmed"),
        lines("Reliance on the surroundings, and the control", "reliance", "reliance/control"),
        panels.WeavePanelSummaryTable(table_name=f"{prefix}/findings_table", layout=panels.Layout(w=24, h=10)),
    ]
    samples = [
        panels.MediaBrowser(title="Relevance over the images", media_keys=[f"{prefix}/overlays"]),
        panels.MediaBrowser(title="Relevance over the texts", media_keys=[f"{prefix}/highlights"]),
        panels.WeavePanelSummaryTable(table_name=f"{prefix}/samples", layout=panels.Layout(w=24, h=12)),
    ]
    single = [matching(f"{text} of each class", f"{own}/{_MEASURES[0]}/.+") for own, text in targets.items()]
    named = [matching(f"Relevance for {text} on regions", f"{own}/region/.+") for own, text in targets.items()]
    accuracy = [
        lines("Accuracy on the sample", "accuracy", "worst_group_accuracy"),
        matching("Accuracy of each group", "accuracy/group_.+"),
    ]
    guided = [
        lines(key.replace("_", " "), key, of="guidance")
        for key in ("total", "swap_distance", "cosine", "norm_ratio", "cost", "applied_weight")
    ]
    cost = [
        lines("Seconds per evaluation", "seconds"),
        lines("Share of the run", "cost_share"),
        lines("Megabytes of the record", "record_mb"),
        lines("Failures", "failures"),
    ]
    return [
        ("Where it looks", True, [focus, *others]),
        ("Findings", True, found),
        ("Samples", True, samples),
        ("Classes, groups and regions", False, [*accuracy, *single, *named]),
        ("Guidance", False, guided),
        ("Cost of the monitor", False, cost),
    ]
