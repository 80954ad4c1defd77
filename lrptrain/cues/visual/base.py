"""The registry of cues of images: what an image looks like, and parts of it that are known by themselves."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from lrptrain.cues.cue import Cue, Role
from lrptrain.cues.images import Where
from lrptrain.cues.look import Look

LookClass = TypeVar("LookClass", bound=type[Look])
Parts = Callable[[Role, int, Where], Sequence[Cue]]
"""Makes cues of a role, of images of so many channels, in all of them or outside of the annotation."""
PartsFunction = TypeVar("PartsFunction", bound=Parts)
_LOOKS: dict[str, type[Look]] = {}
_PARTS: dict[str, Parts] = {}


def register_look(look: LookClass) -> LookClass:
    """Test a look in all images; used as a decorator of its class."""
    if look.kind in _LOOKS:
        raise ValueError(f"there is already a look called {look.kind!r}")
    _LOOKS[look.kind] = look
    return look


def register_parts(parts: PartsFunction) -> PartsFunction:
    """Test the cues that a function makes in all images; used as its decorator."""
    if parts.__name__ in _PARTS:
        raise ValueError(f"there are already parts called {parts.__name__!r}")
    _PARTS[parts.__name__] = parts
    return parts


def registered_looks() -> list[type[Look]]:
    """Return all looks, in the order in which they are tested."""
    return sorted(_LOOKS.values(), key=lambda look: (look.order, look.kind))


def registered_parts(role: Role, channels: int, where: Where = "image") -> list[Cue]:
    """Return the cues that all registered functions make, by the functions' names."""
    return [cue for _, parts in sorted(_PARTS.items()) for cue in parts(role, channels, where)]
