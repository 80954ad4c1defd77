"""Any Lightning logger gets what it takes, and none ends or alters training."""

from typing import Any

import pytest
import torch
from examples import Everything, board_of
from pytorch_lightning.loggers import TensorBoardLogger
from setting import Points, balanced, loader, module, monitor, trainer

from lrptrain.loggers import read_events

MAIN = {
    f"relevance/{key}"
    for key in (
        "label/energy_pointing_game", "predicted/energy_pointing_game", "chance", "accuracy", "worst_group_accuracy",
        "reliance", "any_reliance", "findings", "cost_share", "failures",
    )
}  # fmt: skip


class Shows(Points):
    """A logger that cannot take a relevance score, but pictures and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[str, Any]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if any(key.startswith("relevance/") for key in metrics):
            raise OSError("no place left")
        super().log_metrics(metrics, step)

    def log_image(self, key: str, images: list[Any]) -> None:
        self.shown.append((key, len(images)))

    def log_text(self, key: str, text: str, step: int) -> None:
        self.shown.append((key, step))


def fit(folder, logger, *callbacks, **options):
    pl_module = module(net=balanced(), lr=1e-7)
    torch.manual_seed(1)
    runner = trainer(folder, *callbacks, logger=logger, log_every_n_steps=1, **options)
    runner.fit(pl_module, loader(shuffle=True), loader())
    return pl_module.state_dict()


def scalars(watching):
    """What is known: the rest is null in the record, and makes no point."""
    events = read_events(watching.folder)
    return {each["step"]: {k: v for k, v in each["scalars"].items() if v is not None} for each in events}


@pytest.mark.parametrize("asked", [True, False])
def test_tensorboard_has_all_of_the_record_but_of_scalars_the_main_ones_unless_asked(tmp_path, asked):
    options = {"cues": [Everything()], "min_effect": 1e-6, "max_samples": 24, "all_scalars": asked}
    logger, watching = TensorBoardLogger(tmp_path), monitor(on_error="raise", **options)
    fit(tmp_path, logger, watching, max_epochs=3)
    logger.experiment.close()
    board = board_of(logger.log_dir)
    logged: dict[int, dict[str, float]] = {}
    for key in board.Tags()["scalars"]:
        for point in board.Scalars(key) if key.startswith("relevance/") else ():
            logged.setdefault(point.step, {})[key] = point.value
    assert logged == {
        step: pytest.approx({key: x for key, x in values.items() if asked or key in MAIN}, rel=1e-6)
        for step, values in scalars(watching).items()
    }
    assert len({key for values in logged.values() for key in values} & MAIN) == 9  # no batch has a group
    pictures = sorted(path.name for path in watching.folder.glob("pictures/*/*.png"))
    overlays = [tag for tag in board.Tags()["images"] if tag.startswith("relevance/overlays/")]
    files = [f"{tag.rpartition('/')[2]}.png" for tag in overlays for _ in board.Images(tag)]
    assert sorted(files) == pictures
    tables = board.Tensors("relevance/findings_table/text_summary")
    lines = [event.tensor_proto.string_val[0].decode().splitlines()[2:] for event in tables]
    written = [event["findings"] for event in read_events(watching.folder)]
    assert len(lines[-1]) > 0
    assert [len(each) for each in lines] == [len(each) for each in written]
    for line, fact in zip(lines[-1], written[-1], strict=True):
        assert f"| {fact['verdict']} | {fact['role']} | {fact['kind']} |" in line


def test_a_logger_that_fails_is_told_once_and_changes_nothing(tmp_path):
    logger, other, watching = Shows(), Points(), monitor()
    with pytest.warns(UserWarning, match="failed while logging to Shows: OSError") as caught:
        after = fit(tmp_path / "a", [logger, other], watching, max_epochs=3)
    assert len([warning for warning in caught if "RelevanceMonitor" in str(warning.message)]) == 1
    assert watching.failures == 3
    assert len(scalars(watching)) == 3
    assert len([row for _, row in other.rows if "relevance/samples" in row]) == 3
    # Pictures come although numbers do not.
    assert logger.shown[:2] == [("relevance/overlays", 2), ("relevance/findings_table", 4)]
    assert len(logger.shown) == 6
    without = fit(tmp_path / "b", [Shows(), Points()], max_epochs=3)
    assert all(torch.equal(without[name], value) for name, value in after.items())
