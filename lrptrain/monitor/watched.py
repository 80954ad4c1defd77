"""What is to be known of the keys of values: those of several monitors, and those that something decides by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lrptrain.loggers.metrics import find_metric
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.summary import FINDING_METRICS, logged_metrics


@dataclass(frozen=True)
class Watcher:
    """Something that decides by a value of the monitor.

    Attributes:
        larger_wins: Whether it prefers a larger value; None where that is not known.
        in_order: What to paste where it should prefer the other one.
        without_nan: What to paste where it ends training at a value that is nan; "" where it does not.
    """

    who: str
    key: str
    larger_wins: bool | None = None
    in_order: str = ""
    without_nan: str = ""


def check_watchers(
    watchers: Sequence[Watcher], config: MonitorConfig, inform: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Reject what would end training where nothing is known yet, and say what nan means to the others."""
    nan = "is nan while the model is no better than guessing, or samples are too few"
    unknown: dict[str, list[str]] = {}
    for each in watchers:
        key = each.key.removeprefix(f"{config.prefix}/")
        metric = next((every for every in logged_metrics() if every.matches(key, references=False)), None)
        if metric is None:
            continue
        if None not in (each.larger_wins, metric.higher_is_better) and each.larger_wins != metric.higher_is_better:
            better = "higher" if metric.higher_is_better else "lower"
            warn(f"{each.who} goes by {each.key!r} the wrong way, as {better} is better: {each.in_order}")
        if find_metric(FINDING_METRICS, key) is None:
            continue
        if config.cues is None:
            raise ValueError(f"{each.who} goes by {each.key!r}, which needs tests: {config.kind}() without cues=None")
        if each.without_nan:
            raise ValueError(f"{each.who} would end training, as {each.key!r} {nan}: {each.without_nan}")
        unknown.setdefault(each.key, []).append(each.who)
    for key, names in unknown.items():
        inform(f"{config.title}: {key!r} {nan}: {' and '.join(dict.fromkeys(names))} takes that for the worst value")


def check_names(names: Sequence[str | None]) -> None:
    """Reject two monitors of one name, which would log under the same keys."""
    if len(set(names)) < len(names):
        raise ValueError(
            f"several RelevanceMonitors with the names {names} would log the same keys: give each a "
            "run=lrptrain.Run(name=...)"
        )
    values = {key.partition("/")[0] for metric in logged_metrics() for key in metric.keys}
    folders = [name.split("/") if name else [] for name in names]
    for name, folder in zip(names, folders, strict=True):
        for other in folders:
            if len(folder) > len(other) and folder[: len(other)] == other and folder[len(other)] in values:
                raise ValueError(
                    f"name={name!r} is what another RelevanceMonitor logs a value as, and loggers that keep files "
                    "could not have both: give it another name"
                )
