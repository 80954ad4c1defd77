"""Pets that stand on a surface of their breed, on TinyViT: is the background named and mended without masks?"""

import time
from typing import Any

from experiments.benchmark.asked import BARE, bare, inspected
from experiments.benchmark.cases import Case
from experiments.benchmark.training import CLEAN, READS, data_of, plain_step, right, trained
from experiments.fixes.arms import guided
from experiments.real_models.birds import ASKED, MIDDLE
from experiments.real_models.measured import Measure
from experiments.real_models.watched import PLAIN, SWAP
from experiments.records import named

KIND, NUMBER = "surface", 970
UNPLANTED = "plain, photographs as they are"
ARMS = (PLAIN, SWAP, MIDDLE, UNPLANTED)
MEASURES = [
    Measure("on its own surface", lambda run: run["own"]),
    Measure("on any surface", lambda run: run["any"]),
]


def run(arm: str, seed: int) -> dict[str, Any]:
    """Train one arm and inspect it without masks, on surfaces as in training; the last arm never sees a surface."""
    case = Case("pets", KIND, 1.0, NUMBER + seed)
    data = data_of(case)
    steps = {SWAP: guided(case, "swap"), MIDDLE: guided(case, "swap", swap="background")}
    train = data.train[CLEAN if arm == UNPLANTED else READS]
    started = time.process_time()
    net, _ = trained(case, bare(train) if arm == MIDDLE else train, steps.get(arm, plain_step))
    seconds = time.process_time() - started
    shown = data.bare if arm == UNPLANTED else data.shown
    asked = {
        name: named(inspected(net, shown, case, data.look, BARE, cues=list(cues)).findings)
        for name, cues in ASKED.items()
    }
    record = {"model": "TinyViT-5M", "arm": arm, "seed": seed, "seconds": seconds, "without annotations": asked}
    return record | {
        "own": right(net, shown).astype(int).tolist(),
        "any": right(net, data.unbiased).astype(int).tolist(),
    }
