"""Reads the constant tensors of an ONNX model in the flat format of ONNX Runtime (.ort), without that library.

The file is a FlatBuffer of ONNX Runtime's published schema, ort.fbs: InferenceSession, Model, Graph, Tensor. Only what
leads to the tensors is read; the nodes of the graph are not.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

# The numbers of the fields in the schema.
SESSION_MODEL, MODEL_GRAPH, GRAPH_TENSORS = 1, 7, 0
TENSOR_NAME, TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BYTES = 0, 2, 3, 4
FLOAT32 = 1


class Table:
    """A table of a FlatBuffer: fields at offsets that its own list of offsets tells.

    Args:
        data: The whole file.
        position: Where the table begins.
    """

    def __init__(self, data: bytes, position: int):
        self.data, self.position = data, position
        (back,) = struct.unpack_from("<i", data, position)
        self.offsets = position - back
        (self.size,) = struct.unpack_from("<H", data, self.offsets)

    def field(self, number: int) -> int | None:
        """Where a field lies; None if the table leaves it out."""
        entry = 4 + 2 * number  # behind the sizes of the list and of the table
        if entry >= self.size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, self.offsets + entry)
        return self.position + offset if offset else None

    def child(self, number: int) -> "Table":
        """The table that a field refers to.

        Raises:
            ValueError: If there is none.
        """
        at = self.field(number)
        if at is None:
            raise ValueError("not a file of ONNX Runtime: a table that the schema has is missing")
        return Table(self.data, _referred(self.data, at))

    def children(self, number: int) -> Iterator["Table"]:
        """The tables of a list."""
        start, length = self.span(number)
        for at in range(start, start + 4 * length, 4):
            yield Table(self.data, _referred(self.data, at))

    def span(self, number: int) -> tuple[int, int]:
        """Where a list or a text begins, and its length; (0, 0) if it is left out."""
        at = self.field(number)
        if at is None:
            return 0, 0
        start = _referred(self.data, at)
        (length,) = struct.unpack_from("<I", self.data, start)
        return start + 4, length

    def integer(self, number: int) -> int:
        """A field of 32 bits; 0 if it is left out."""
        at = self.field(number)
        return 0 if at is None else int(struct.unpack_from("<i", self.data, at)[0])


def _referred(data: bytes, at: int) -> int:
    (offset,) = struct.unpack_from("<I", data, at)
    return at + int(offset)


def tensors(path: Path) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the constant float32 tensors of the graph, by name.

    Raises:
        ValueError: If it is no such file.
    """
    data = path.read_bytes()
    if data[4:8] != b"ORTM":
        raise ValueError(f"{path} is not a file of ONNX Runtime: its mark ORTM is missing")
    session = Table(data, _referred(data, 0))
    graph = session.child(SESSION_MODEL).child(MODEL_GRAPH)
    found = {}
    for tensor in graph.children(GRAPH_TENSORS):
        if tensor.integer(TENSOR_TYPE) != FLOAT32:
            continue
        start, length = tensor.span(TENSOR_NAME)
        name = data[start : start + length].decode()
        start, length = tensor.span(TENSOR_SHAPE)
        shape = struct.unpack_from(f"<{length}q", data, start)
        start, length = tensor.span(TENSOR_BYTES)
        found[name] = np.frombuffer(data, "<f4", length // 4, start).reshape(shape)
    return found
