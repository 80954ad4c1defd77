"""Checks of arguments that several callbacks share."""

from collections.abc import Sequence


def check_run_name(name: str | None) -> None:
    """Reject a name that cannot be that of one folder.

    Args:
        name: The name, or None.

    Raises:
        ValueError: If it is empty, a path, or points at another folder.
    """
    if name is not None and (not name.strip() or name in (".", "..") or any(each in name for each in "/\\\0")):
        raise ValueError(f"run_name is the name of one folder below relevance/, not {name!r}")


def check_counts(least: int = 1, **counts: int) -> None:
    """Reject counts below `least`.

    Raises:
        ValueError: With the name of the argument.
    """
    for name, value in counts.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def check_normalisation(mean: float | Sequence[float] | None, std: float | Sequence[float] | None) -> None:
    """Reject a mean without a standard deviation, and the reverse.

    Raises:
        ValueError: If one of them is None.
    """
    if (mean is None) != (std is None):
        raise ValueError("give both mean and std, or neither")


def check_on_error(on_error: str) -> None:
    """Reject what is no way to go on after a failure.

    Raises:
        ValueError: With the two that there are.
    """
    if on_error not in ("warn", "raise"):
        raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")
