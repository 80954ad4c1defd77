"""Does mending one shortcut make another one worse? Digits with a tag and a tint, each right in 95 % for itself.

`python -m experiments.guidance.two_shortcuts` makes the runs that are missing, and writes the table into README.md.

After Li et al. 2023, "A Whac-A-Mole dilemma: shortcuts come in multiples where mitigating one amplifies others".
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset

from experiments.command import no_options
from experiments.guidance import images
from experiments.guidance.arms import PLAIN, UPPER, Arm, Task
from experiments.guidance.benchmarks import model_columns
from experiments.guidance.fitting import Trained, draw_weights, fit, trained_anew
from experiments.guidance.marked import SHUFFLED, marked_digits
from experiments.guidance.measures import accuracy, logits
from experiments.guidance.report import held_to, shown
from experiments.guidance.results import complete
from experiments.parallel import Run, load
from experiments.table import markdown, write_between
from lrptrain.findings import Finding

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "two_shortcuts.jsonl"
MARKS = ("<!-- two shortcuts -->", "<!-- end of two shortcuts -->")
STEPS, SEEDS = 160, (0, 1, 2, 3, 4)
SHORTCUTS = {"tag": 0.95, "tint": 0.95}
BOTH, TWICE = "swap of surroundings (masks) and statistics", ", twice the steps"
"""What mends both; how the name of an arm ends that gets more compute."""
CONFIRMED, COLOUR = "swap of what the monitor confirmed, trained anew", ", colour judged a fault"
"""Without annotations; how the name of an arm ends in which a person says that the classes do not differ in colour."""
OF_COLOUR = ("reliance_on_statistics", "class_reliance_on_statistics", "statistics_of_class")
WORSE_GOAL = 0.01
"""How much more than in plain training a shortcut may cost when it is shuffled."""
ARMS = {
    PLAIN: Arm(),
    "swap (masks)": Arm({"loss": "swap"}),
    "consistency (masks), weight 10": Arm({"loss": "consistency"}, (10.0,)),
    "swap of statistics": Arm({"loss": "swap", "swap": "colour"}),
    BOTH: Arm({"loss": "swap", "swap": "outside+statistics"}),
    BOTH + TWICE: Arm({"loss": "swap", "swap": "outside+statistics"}),
    "group DRO, told the tag's groups": Arm(rule="group_dro"),
    "colour jitter": Arm(rule="jitter"),
    CONFIRMED: Arm(),
    CONFIRMED + COLOUR: Arm(),
    UPPER: Arm(clean=True),
}
TESTS = {
    "accuracy": SHORTCUTS,
    "tag shuffled": {**SHORTCUTS, "tag": SHUFFLED},
    "tint shuffled": {**SHORTCUTS, "tint": SHUFFLED},
    "both shuffled": dict.fromkeys(SHORTCUTS, SHUFFLED),
}


def train(task: Task) -> dict[str, Any]:
    """Train one model, and measure it with both shortcuts, with each of them shuffled, and with both."""
    torch.set_num_threads(1)
    arm = ARMS[task.arm]
    columns = marked_digits(
        "train", dict.fromkeys(SHORTCUTS, SHUFFLED) if arm.clean else SHORTCUTS, images.SIZE, task.seed
    )
    steps = STEPS * (2 if task.arm.endswith(TWICE) else 1)

    def new_module() -> Trained:
        return Trained(images.network(task.seed), lambda batch: {"x": batch["image"]}, arm, images.LR)

    def new_batches() -> DataLoader:
        return images.batches(columns, draw_weights(columns, arm), task.seed)

    started = time.monotonic()
    measured: dict[str, Any] = {}
    if task.arm.startswith(CONFIRMED):
        seen = model_columns(marked_digits("val", SHORTCUTS, images.SIZE, task.seed))
        validation = DataLoader(cast(Dataset, seen), batch_size=None)
        judge = _judge_colour if COLOUR in task.arm else _judge_nothing
        module, parts = trained_anew(new_module, new_batches, validation, steps, task.seed, judge)
        measured["swapped"] = [part.name for part in parts]
    else:
        module = new_module()
        fit(module, new_batches(), steps, task.weight, task.seed)
    measured["seconds"] = time.monotonic() - started
    for name, correlations in TESTS.items():
        data = marked_digits("test", correlations, images.SIZE, task.seed)
        measured[name] = accuracy(logits(module.net, data["image"]), data["label"])
    return measured


def _judge_nothing(finding: Finding) -> Finding:
    return finding


def _judge_colour(finding: Finding) -> Finding:
    """What a person says who knows that no digit has a colour of its own."""
    return finding.as_fault() if finding.kind in OF_COLOUR else finding


def change(shortcut: str, run: Run) -> float:
    """What becomes of the accuracy of a run when a shortcut is shuffled: below 0 where the model reads it."""
    return float(run[f"{shortcut} shuffled"] - run["accuracy"])


def table(runs: Sequence[Run]) -> str:
    """A row per arm: accuracies, what each shortcut costs when it is shuffled, and both beside plain training."""
    rows = []
    by_seed = {arm: {run["seed"]: run for run in runs if run["arm"] == arm} for arm in ARMS}
    for arm, own in by_seed.items():
        if not own:
            continue
        row = {"arm": arm, "seeds": str(len(own))}
        row |= {name: shown([run[name] for run in own.values()]) for name in ("accuracy", "both shuffled")}
        for shortcut in SHORTCUTS:
            row[f"{shortcut} shuffled"] = shown([change(shortcut, run) for run in own.values()])
        for shortcut in SHORTCUTS:
            beside = [change(shortcut, run) - change(shortcut, by_seed[PLAIN][seed]) for seed, run in own.items()]
            row[f"{shortcut}, less plain's"] = "" if arm == PLAIN else held_to(beside, -WORSE_GOAL)
        rows.append(row)
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    tasks = [Task(arm, seed, {}, (*own.weights, 0.0)[0]) for seed in SEEDS for arm, own in ARMS.items()]
    complete(RESULTS, tasks, train, 1)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
