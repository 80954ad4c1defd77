"""`pytest -m gpu`: the same on a GPU as on the CPU. Without a GPU the selection runs on the CPU, in small."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "callbacks")]  # on_device, setting


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the CPU a third of the cases of each test shows whether it runs: other folders test the numbers."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    if not torch.cuda.is_available():
        counts: Counter[str] = Counter()
        for item in ours:
            name = item.nodeid.partition("[")[0]
            if counts[name] % 3:
                items.remove(item)
            counts[name] += 1
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            for message in ("The '.*_dataloader' does not have many workers", ".*LeafSpec.* is deprecated"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{message}"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The GPU, or the CPU where there is none."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def exact(device: torch.device) -> Iterator[None]:
    """Products in float32, not in TF32: a convolution's are by default, at 1e-3 of the CPU's."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture
def repeatable(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that add in the same order in each run."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield
    torch.use_deterministic_algorithms(False)
