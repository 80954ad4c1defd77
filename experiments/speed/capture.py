"""Can a map be compiled, or captured as a CUDA graph? See README.md.

    .venv/bin/python -m experiments.speed.capture

A small ViT on the CPU: what torch.compile says, and how often Python waits for a number of a tensor, which no CUDA
graph can hold.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch.utils._python_dispatch import TorchDispatchMode

import lrptrain
from experiments.command import no_options
from experiments.table import markdown

METHODS = ("attnlrp", "input_x_gradient", "generic_attention", "rollout", "transformer_attribution")
# Operations of which the result, or its size, is known only when they are done.
WAITING = ("_local_scalar_dense", "nonzero", "_unique2", "equal")


class Calls(TorchDispatchMode):
    """Counts operations, and those that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count one call, and carry it out."""
        self.counts["all"] += 1
        self.counts["waiting"] += func.overloadpacket.__name__ in WAITING
        return func(*args, **(kwargs or {}))


def counted(work: Callable[[], object]) -> str:
    """Operations of a call, and how many of them wait."""
    with Calls() as calls:
        work()
    return f"{calls.counts['waiting']} of {calls.counts['all']}"


def said(work: Callable[[], object]) -> str:
    """What compiling says."""
    try:
        work()
    except Exception as error:  # any of torch's own
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "works"


def main() -> None:
    no_options(__doc__)
    torch.manual_seed(0)
    model = VisionTransformer(img_size=64, embed_dim=96, depth=3, num_heads=3, num_classes=10).eval()
    images = torch.randn(2, 3, 64, 64)

    def explain(of: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return lrptrain.attribute(of, x, target=1, method="attnlrp").scores

    compiled = torch.compile(model, backend="eager")
    compiled(images)
    same = torch.equal(explain(compiled, images), explain(model, images))  # type: ignore[arg-type]
    print(f"map of a compiled model: {'the same numbers' if same else 'other numbers'}")
    for whole in (True, False):
        torch._dynamo.reset()
        function = torch.compile(partial(explain, model), fullgraph=whole, backend="eager")
        print(f"torch.compile of attribute, fullgraph={whole}: {said(partial(function, images))}")
    rows = []
    for method in METHODS:
        recording = lrptrain.record(model, images, frugal=True)
        recording.attribute(1, method)  # finds its tokens
        rows.append(
            {
                "method": f"`{method}`",
                "a map": counted(partial(lrptrain.attribute, model, images, 1, method)),
                "a further map of a recording": counted(partial(recording.attribute, 1, method)),
            }
        )
    print(markdown(rows))


if __name__ == "__main__":
    main()
