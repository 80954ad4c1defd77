"""A ViT learns a coloured tag instead of the digit, and the monitor says so; guided, it learns the digit.

Nothing to download.
"""

import sys
from pathlib import Path
from typing import Any

from lrptrain.terminal import fitted_to


def demo(output: str = "runs/demo", epochs: int = 7, max_samples: int = 100, images: int = 4800, seed: int = 0) -> None:
    """Fine-tune a small ViT on digits with a planted tag, under the monitor; then once more, guided.

    Args:
        output: Folder for the runs, the W&B files (offline unless you are logged in) and the picture.
        epochs: Training epochs.
        max_samples: Size of the monitored sample.
        images: Training images.
        seed: Seed of data, weights and sample.

    Raises:
        ValueError: If there is no epoch.
    """
    if epochs < 1:
        raise ValueError(f"--epochs must be at least 1, not {epochs}")
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.cli.demo_runs import GUIDANCE_OPTIONS, compare_outcomes, quiet, train, write_overlays
    from lrptrain.data import PlantedDigits

    quiet()
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    # The tag alone gives away the class of every training image; the test images have none.
    sizes: dict[str, Any] = {"image_size": 24, "digit_size": 20, "train_size": images, "batch_size": 64}
    data = PlantedDigits(shortcut="tag", correlation=1.0, seed=seed, **sizes)
    how: dict[str, Any] = {"epochs": epochs, "max_samples": max_samples, "seed": seed}
    _say("A small ViT learns handwritten digits. Each training image also carries a 4 x 4 tag in its class's colour.")
    plain = train(data, folder / "plain", guided=False, **how)
    arguments = ", ".join(f"{name}={value!r}" for name, value in GUIDANCE_OPTIONS.items())
    _say(
        'The same once more, guided. The line of the finding, RelevanceGuidance("swap"), is for trained weights: from '
        f"random ones it takes several times as many epochs. So here it is RelevanceGuidance({arguments})."
    )
    guided = train(data, folder / "guided", guided=True, **how)
    picture = write_overlays(plain.scored, guided.scored, data, folder / "overlays.png")
    text = compare_outcomes(plain, guided)
    (folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    # The verdict comes last, where nothing buries it.
    print(f"\npicture     {picture}")
    for name, outcome in (("plain", plain), ("guided", guided)):
        print(f"run         {outcome.folder}\ncheckpoint  {folder / name / 'model.ckpt'}")
    print(f"\n{text}")


def _say(message: str) -> None:
    """Print a message between empty lines."""
    print(f"\n{fitted_to(sys.stdout, message)}\n")
