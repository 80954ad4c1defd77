"""The samples that an evaluation goes on without: said once, counted, and written down."""

from collections.abc import Mapping
from pathlib import Path

from lrptrain.files import write_json
from lrptrain.findings.sentences import MOST_NAMES

FILE = "left_out.json"


class LeftOut:
    """Why samples have no part in a run, by their ids.

    Attributes:
        problems: What is wrong with each of them.
    """

    def __init__(self) -> None:
        self.problems: dict[int | str, str] = {}

    def add(self, problems: Mapping[int | str, str]) -> str:
        """Add samples.

        Args:
            problems: What is wrong, by id; samples that are known already are passed by.

        Returns:
            One line about the new ones, "" without any.
        """
        new = {sample_id: problem for sample_id, problem in problems.items() if sample_id not in self.problems}
        self.problems |= new
        if not new:
            return ""
        # Samples with one problem together: "3, 17: 'image' holds NaN ...; 5: the label 9 is ..."
        by_problem: dict[str, list[str]] = {}
        for sample_id, problem in new.items():
            by_problem.setdefault(problem, []).append(str(sample_id))
        parts = [f"{', '.join(ids[:MOST_NAMES])}: {problem}" for problem, ids in by_problem.items()]
        named = sum(min(len(ids), MOST_NAMES) for ids in list(by_problem.values())[:MOST_NAMES])
        rest = f"; and {len(new) - named} more, see {FILE}" if len(new) > named else ""
        what = "sample is" if len(new) == 1 else "samples are"
        return f"{len(new)} {what} left out for the rest of the run. {'; '.join(parts[:MOST_NAMES])}{rest}"

    def write(self, folder: Path) -> None:
        """Write all of them to a run's folder, if there are any."""
        if self.problems:
            write_json(folder / FILE, {str(sample_id): problem for sample_id, problem in self.problems.items()})
