"""The cells of a GPU, run small on the CPU: one that fails ends nothing, and the tables say what was measured."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from experiments.speed import cells, gpu
from experiments.speed.works import TRAINING, work_of

VIT = "ViT-B/16, 224 px"


def arguments(**settings: object) -> Namespace:
    given = {"models": [VIT], "methods": ["random", "rollout"], "rounds": 1, "threads": 1, "limit": 120.0}
    return Namespace(**given | settings)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    def work(name, *rest):
        def fail():
            raise torch.OutOfMemoryError("CUDA out of memory")

        return fail if name == "rollout" else work_of(name, *rest)

    small = gpu.Case(lambda: VisionTransformer(64, embed_dim=96, depth=3), lambda: torch.randn(1, 3, 64, 64), 196, 1)
    monkeypatch.setitem(gpu.CASES, VIT, small)
    monkeypatch.setattr(gpu, "work_of", work)
    monkeypatch.setattr(gpu, "apart", lambda measured, *_: cells._outcome(measured))  # without a fork
    measured = {"cells": {}, "device": "a processor", "torch": "2"}
    gpu.measure(arguments(), "cpu", measured, tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == measured
    return measured


def test_a_cell_that_runs_out_of_memory_says_so_and_the_others_go_on(found):
    names = (TRAINING, "random", "rollout")
    assert list(found["cells"]) == [f"{VIT} | {precision} | {name}" for precision in gpu.PRECISIONS for name in names]
    text = gpu.tables(found)
    assert text.count("| `rollout` | out of memory | out of memory | out of memory | out of memory |") == 1
    assert "Did not run" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("| `random`"))
    assert " - " not in row
    assert "out of memory" not in row


def test_what_is_there_is_not_measured_again(found, tmp_path):
    before = json.dumps(found)
    assert not gpu.planned(arguments(), found["cells"])
    gpu.measure(arguments(), "cpu", found, tmp_path / "again.json")
    assert json.dumps(found) == before


def test_what_would_take_too_long_is_left_out(found, tmp_path):
    found["cells"][f"{VIT} | fp32 | {TRAINING}"]["seconds"] = 3.0
    found["cells"][f"{VIT} | bf16 | {TRAINING}"]["seconds"] = 0.3
    assert gpu.passes("leave_one_out", 196) == pytest.approx(196 / 3)
    gpu.measure(arguments(methods=["kernel_shap"], limit=-1.0), "cpu", found, tmp_path / "more.json")
    assert found["cells"][f"{VIT} | fp32 | kernel_shap"]["error"] == "would take 4 minutes or more"
    assert f"- kernel_shap: would take 4 minutes or more ({VIT} in fp32)" in gpu.tables(found)


def test_a_library_that_writes_into_the_model_comes_last():
    (patching,) = gpu.PATCHING
    planned = gpu.planned(arguments(methods=[patching, "random"]), {})
    assert [name for *_, name in planned] == [TRAINING, "random", TRAINING, "random", patching, patching]


def test_of_another_device_nothing_is_added(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    saved = {"cells": {"a | fp32 | b": {}}, "device": "another", "torch": "2"}
    (tmp_path / "results" / "gpu.json").write_text(json.dumps(saved), encoding="utf-8")
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    with pytest.raises(SystemExit, match="no GPU"):
        gpu.run(arguments(device="cuda", tables_only=False))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "this")
    with pytest.raises(SystemExit, match="was measured on another"):
        gpu.run(arguments(device="cuda", tables_only=False))
