"""The ways out that messages of errors name: never the method that was just called."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CALLED: ContextVar[str | None] = ContextVar("the method that runs", default=None)

# Methods that need neither attention maps nor one sequence, from the one that asks least of a model.
REACH_INPUT = ("integrated_gradients", "attnlrp", "lrp")
# Methods that propagate no relevance.
WITHOUT_RULES = ("integrated_gradients", "generic_attention", "rollout", "raw_attention")


@contextmanager
def called(method: str) -> Iterator[None]:
    """Remember the method that runs, in this thread, so that no message advises it."""
    token = _CALLED.set(method)
    try:
        yield
    finally:
        _CALLED.reset(token)


def other_methods(*names: str) -> str:
    """Name methods that may serve instead: "integrated_gradients or lrp", without the one that was called."""
    others = [name for name in names if name != _CALLED.get()]
    return " or ".join([", ".join(others[:-1]), others[-1]] if len(others) > 1 else others)


def several_tokens() -> str:
    """Return what is wrong with a map of one token's attention, where the logits are computed from several tokens."""
    return (
        "the logits are computed from several tokens (a mean, a token for each class, choices), so that its map may be "
        f"uniform, or that of another class; {other_methods('attnlrp', 'gamma_lrp')} follow all of them"
    )
