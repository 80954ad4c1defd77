import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # setting


def pytest_collection_modifyitems(items):
    """Third-party warnings, by name."""
    import pytest

    for item in items:
        if Path(__file__).parent in item.path.parents:
            for message in (
                "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
                "ignore:The '.*_dataloader' does not have many workers",
                "ignore:Trying to infer the `batch_size` from an ambiguous collection",
                "ignore:Checkpoint directory .* exists and is not empty",
                "ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
                "ignore:The number of training batches",
                "ignore:.*pin_memory",
            ):
                item.add_marker(pytest.mark.filterwarnings(message))
