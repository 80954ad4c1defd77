"""Checks of arguments that several callbacks share."""

from collections.abc import Sequence
from numbers import Integral, Real


def check_run_name(name: str | None) -> None:
    """Reject a name that cannot be that of one folder."""
    check_texts(run_name=name)
    if name is not None and (not name.strip() or name in (".", "..") or any(each in name for each in "/\\\0")):
        raise ValueError(f"run_name is the name of one folder below relevance/, not {name!r}")


def check_counts(least: int = 1, **counts: int) -> None:
    """Reject what is no whole number, and counts below `least`."""
    for name, value in counts.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number, not {value!r}")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def check_shares(**shares: float) -> None:
    """Reject what does not lie between 0 and 1."""
    for name, value in shares.items():
        if not isinstance(value, Real) or not 0 < value < 1:
            raise ValueError(f"{name} must lie between 0 and 1, not {value!r}")


def check_texts(**texts: str | None) -> None:
    """Reject names that are no text."""
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{name} must be a text or None, not {value!r}")


def check_normalisation(mean: float | Sequence[float] | None, std: float | Sequence[float] | None) -> None:
    """Reject a mean without a standard deviation, and the reverse."""
    if (mean is None) != (std is None):
        raise ValueError("give both mean and std, or neither")
    # Whatever holds the numbers, such as an array or a tensor.
    values = () if std is None else (std,) if isinstance(std, int | float) else tuple(std)
    if not all(float(each) > 0 for each in values):
        raise ValueError(f"std must be larger than 0, not {std!r}")


def check_on_error(on_error: str) -> None:
    """Reject what is no way to continue after a failure."""
    if on_error not in ("warn", "raise"):
        raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")
