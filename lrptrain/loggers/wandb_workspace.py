"""A W&B workspace for a project's monitored runs, made by code."""

import warnings
from collections.abc import Sequence
from typing import Any

from lrptrain.extras import require
from lrptrain.loggers.metrics import CLASSES, COST, FINDINGS, GUIDANCE, WHERE_IT_LOOKS, LoggedMetric
from lrptrain.loggers.wandb import logged_in

_STEP = "trainer/global_step"
SAMPLES = "Samples"
SECTIONS = (WHERE_IT_LOOKS, FINDINGS, SAMPLES, CLASSES, GUIDANCE, COST)
_OPEN = (WHERE_IT_LOOKS, FINDINGS, SAMPLES)
GUIDANCE_METRICS = tuple(
    LoggedMetric((key,), key.replace("_", " "), GUIDANCE, unit="number", prefix="guidance")
    for key in ("total", "applied_weight", "swap_distance", "norm_ratio")
)
"""What `RelevanceGuidance` logs of every objective."""


def save_workspace(
    project: str, metrics: Sequence[LoggedMetric], name: str | None = None, title: str = "Relevance"
) -> str:
    """Save a workspace view for monitored runs in a W&B project."""
    view = make_workspace(project, metrics, name, title)
    if not logged_in():
        raise ValueError(
            "a workspace is saved in your W&B account, and there is no key for one: run `wandb login` first"
        )
    try:
        return view.save().url
    except Exception as error:  # wandb raises many kinds, with messages of many lines
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"W&B did not take the workspace of {project!r}: {type(error).__name__}: {reason}") from error


def make_workspace(
    project: str, metrics: Sequence[LoggedMetric], name: str | None = None, title: str = "Relevance"
) -> Any:
    """The same workspace as an object of wandb-workspaces, to be changed or saved; nothing is sent."""
    parts = project.split("/")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"project must be ENTITY/PROJECT, as in the project's address, not {project!r}")
    entity, project_name = parts
    workspaces, panels = _libraries()
    # A monitor with a name logs below it; the guidance logs below "guidance" in any case.
    prefix = f"relevance/{name}" if name else "relevance"
    logged = [*metrics, *GUIDANCE_METRICS]
    sections = [
        workspaces.Section(name=heading, panels=_panels(panels, heading, logged, prefix), is_open=heading in _OPEN)
        for heading in SECTIONS
    ]
    settings = workspaces.WorkspaceSettings(x_axis=_STEP, ignore_outliers=False)
    return workspaces.Workspace(
        entity=entity, project=project_name, name=title, sections=sections, settings=settings, auto_generate_panels=True
    )


def _libraries() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is written for an older pydantic, which says so
        return tuple(require(f"wandb_workspaces.{part}", "workspace") for part in ("workspaces", "reports.v2"))  # type: ignore[return-value]


def _panels(panels: Any, section: str, metrics: Sequence[LoggedMetric], prefix: str) -> list[Any]:
    """A section's lines, and its media and tables."""
    lines = [
        line
        for metric in metrics
        if metric.section == section
        for line in _lines(panels, metric, prefix if metric.prefix == "relevance" else metric.prefix)
    ]
    if section == FINDINGS:
        lines.append(_table(panels, f"{prefix}/findings_table", height=10))
    if section == CLASSES:
        lines.append(_table(panels, f"{prefix}/scores_table", height=12))  # of many classes; see `scores_table`
    if section == SAMPLES:
        lines += [
            panels.MediaBrowser(title="Relevance over the images", media_keys=[f"{prefix}/overlays"]),
            panels.MediaBrowser(title="Relevance over the texts", media_keys=[f"{prefix}/highlights"]),
            _table(panels, f"{prefix}/samples", height=12),
        ]
    return lines


def _lines(panels: Any, metric: LoggedMetric, prefix: str) -> list[Any]:
    """One plot of all keys that are known, and one for each pattern."""
    # Keys such as "label/region/*" name classes or regions that only the run knows: W&B finds these by a pattern.
    keys = [key for key in (*metric.keys, *metric.references) if "*" not in key]
    plots = [panels.LinePlot(title=metric.title, x=_STEP, y=[f"{prefix}/{key}" for key in keys])] if keys else []
    for key in metric.keys:
        if "*" in key:
            title = f"{metric.title} ({key.partition('/')[0]})" if len(metric.keys) > 1 else metric.title
            # "label/region/*" becomes the pattern "relevance/label/region/.+".
            regex = f"{prefix}/{key.replace('*', '.+')}"
            plots.append(panels.LinePlot(title=title, x=_STEP, metric_regex=regex))
    return plots


def _table(panels: Any, key: str, height: int) -> Any:
    return panels.WeavePanelSummaryTable(table_name=key, layout=panels.Layout(w=24, h=height))
