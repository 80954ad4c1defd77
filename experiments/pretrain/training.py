"""A training that may be cut off: its whole state is saved, and the next call goes on as if nothing had happened."""

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int, UInt8
from torch import Tensor, nn

from experiments.pretrain.recipes import Recipe

SMOOTHING, WEIGHT_DECAY, WARM_UP = 0.1, 0.05, 0.1
SAVED_EVERY = 120.0
"""Seconds after which the state is saved again."""


class Training:
    """A model on its way.

    Args:
        recipe: Of its size.
        steps: Until the end of the schedule.
        seed: Of the weights and of all that is drawn.
        device: Where the images are.
    """

    def __init__(self, recipe: Recipe, steps: int, seed: int, device: torch.device) -> None:
        torch.manual_seed(seed)
        self.recipe = recipe
        self.steps = steps
        self.device = device
        self.model = recipe.model().to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=recipe.lr, weight_decay=WEIGHT_DECAY)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, recipe.lr, steps, pct_start=WARM_UP)
        self.done = 0
        self.seconds = 0.0

    def run(
        self, pixels: UInt8[Tensor, "n 3 32 32"], labels: Int[Tensor, " n"], path: Path, seconds: float = float("inf")
    ) -> bool:
        """Train to the end, or for so many seconds; return whether it is finished.

        Args:
            pixels: All training images.
            labels: Their classes.
            path: Where the state is kept between calls.
            seconds: After which it stops.
        """
        started = saved = time.monotonic()
        before = self.seconds
        while self.done < self.steps and time.monotonic() - started < seconds:
            self._step(pixels, labels)
            self.seconds = before + time.monotonic() - started
            if time.monotonic() - saved > SAVED_EVERY:
                self.save(path)
                saved = time.monotonic()
        self.save(path)
        return self.done == self.steps

    def _step(self, pixels: Tensor, labels: Tensor) -> None:
        chosen = torch.randint(len(labels), (self.recipe.batch,), device=self.device)
        images, targets = self.recipe.batch_of(pixels[chosen], labels[chosen])
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = F.cross_entropy(self.model(images), targets, label_smoothing=SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.done += 1

    def save(self, path: Path) -> None:
        """Write everything that decides what comes next."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")  # a call that is cut off here leaves the last state whole
        torch.save(self._state(), aside)
        aside.replace(path)

    def load(self, path: Path) -> None:
        """Go on from there.

        Raises:
            ValueError: If that training is another one.
        """
        state = torch.load(path, weights_only=True, map_location="cpu")
        if state["steps"] != self.steps:
            raise ValueError(f"{path} is of {state['steps']} steps, not {self.steps}; move it away to begin anew")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.done = state["done"]
        self.seconds = state["seconds"]
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random of the device"], self.device)

    def _state(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "schedule")}
        counts = {name: getattr(self, name) for name in ("steps", "done", "seconds")}
        random = {"random": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["random of the device"] = torch.cuda.get_rng_state(self.device)
        return parts | counts | random
