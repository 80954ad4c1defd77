"""Do the swaps of an object's place and size tell models that read these from others? See README.md.

    .venv/bin/python -m experiments.detection.placement

Trains small ViTs on digits and photographs whose class goes with where the annotated thing lies, or how large it is, on
some where these are of any class, and on some without. It prints how far answers move under the swaps, beyond the
control.
"""

import torch

from experiments.benchmark.cases import NO_MARK, Case
from experiments.command import no_options
from experiments.detection.properties import measured
from experiments.table import markdown
from lrptrain.findings.detectors.location import RelianceOnLocation
from lrptrain.findings.detectors.size import RelianceOnSize


def cases() -> list[Case]:
    """Planted runs of three correlations, clean ones with the same properties, and clean ones without."""
    plan = [(kind, correlation) for correlation in (1.0, 0.9, 0.8, None) for kind in ("place", "size")]
    plan += [(NO_MARK, None)] * 4
    pairs = [(task, *each) for each in plan for task in ("digits", "photographs")]
    return [Case(*each, 56, number) for number, each in enumerate(pairs)]


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    rows = []
    for case in cases():
        rows += measured(case, RelianceOnLocation(), RelianceOnSize())
        print(*rows[-2:], sep="\n", flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
