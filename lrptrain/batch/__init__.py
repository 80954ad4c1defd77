"""The contract with a user's data: batches in one form, their annotations, and the samples drawn from them."""

from lrptrain.batch.call import IMAGES, batch_length, model_inputs
from lrptrain.batch.reading import BatchAdapter, Sample, batched, collate, read_batch, take, token_annotations

__all__ = [
    "IMAGES",
    "BatchAdapter",
    "Sample",
    "batch_length",
    "batched",
    "collate",
    "model_inputs",
    "read_batch",
    "take",
    "token_annotations",
]
