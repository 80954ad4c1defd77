"""What a map is shown with: the input that it explains, as long as somebody keeps it, and the names of classes."""

import weakref
from collections.abc import Mapping
from typing import Any

from jaxtyping import Int
from torch import Tensor


class ExplainedBatch:
    """The explained input of a map.

    Token ids are kept. Images are not: a list of maps must not hold the images of a whole data set, a thousand times as
    large. They are found again as long as the caller has them, unchanged.
    """

    def __init__(
        self,
        explained: Tensor,
        padding: Tensor | None = None,
        class_names: Mapping[int, str] | None = None,
        problem: str | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.shape = tuple(explained.shape)
        is_text = not explained.is_floating_point() and explained.ndim == 2
        # The caller's buffers may be filled with the next batch.
        self.token_ids: Int[Tensor, "batch tokens"] | None = explained.detach().clone() if is_text else None
        self.padding = None if padding is None or not is_text else padding.detach().clone()
        self.class_names = dict(class_names or {})
        self.problem = problem
        names_tokens = hasattr(tokenizer, "convert_ids_to_tokens") or hasattr(tokenizer, "id_to_token")
        self.tokenizer = tokenizer if names_tokens else None
        self._tensor = None if is_text else weakref.ref(explained)
        self._version = None if is_text else _version(explained)

    @property
    def tensor(self) -> Tensor | None:
        """The images, waveforms or whatever else was explained; None for texts, and where it is gone or was changed."""
        explained = None if self._tensor is None else self._tensor()
        return explained if explained is not None and _version(explained) == self._version else None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a file keeps: all but the reference."""
        return {**self.__dict__, "_tensor": None, "_version": None}


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; tensors of the inference mode do not count it."""
    return 0 if tensor.is_inference() else tensor._version
