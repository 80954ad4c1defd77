"""A run's record within a budget: beyond it, numbers and maps go on, pictures do not."""

import warnings
from dataclasses import replace
from pathlib import Path

from lrptrain.files import folder_size_mb
from lrptrain.loggers.local import write_record
from lrptrain.loggers.record import EpochRecord


class RecordWriter:
    """Writes the evaluations of a run, and says how large its record has become.

    Args:
        max_mb: Once the folder has so many megabytes (10^6 bytes), inputs, pictures, highlights and the maps of many
            classes are no longer added; one warning says so.

    Raises:
        ValueError: If the budget is negative.
    """

    def __init__(self, max_mb: float) -> None:
        if not max_mb >= 0:
            raise ValueError(f"max_record_mb must be a number of megabytes, 0 or more, not {max_mb}")
        self.max_mb = max_mb
        self._told = False

    def write(self, folder: Path, record: EpochRecord) -> EpochRecord:
        """Write one evaluation.

        Args:
            folder: Of the run.
            record: What to write.

        Returns:
            The record with one scalar more, `<prefix>/record_mb`: the size of the folder before.
        """
        size = folder_size_mb(folder)
        record = replace(record, scalars={**record.scalars, f"{record.prefix}/record_mb": size})
        full = size >= self.max_mb
        if full and not self._told:
            self._told = True
            warnings.warn(
                f"The run's record {str(folder)!r} has {size:.0f} MB, and its budget is max_record_mb={self.max_mb:g}: "
                "scores, findings and maps are still written, pictures no longer",
                stacklevel=2,
            )
        kept = replace(record, pictures=[], texts=[], inputs={}, class_maps=[]) if full else record
        write_record(folder, kept, room_mb=self.max_mb - size)
        return record
