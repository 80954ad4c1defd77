"""The figure: scenes with two things, and what becomes of their masks."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import torch
from matplotlib import pyplot as plt

from experiments.parallel import Run
from experiments.segment_scenes.stages import pseudo, said, segmenter
from experiments.segment_scenes.things import Things
from lrptrain.data.pictures import voc_palette
from lrptrain.render.image import to_picture
from lrptrain.segmentation.masks import label_map


def figure(things: Things, run: Run, path: Path, count: int = 4) -> None:
    """Test scenes: the image, seeds, refined seeds, what the segmenter says, and the truth."""
    source, step = run["segmenters"]["source"], run["segmenters"]["refinement"]
    net = segmenter(things, pseudo(things, run["sources"], source, step))
    seeds = things.seeds(source, "test", things.present("test"))
    cut = run["sources"][source]
    panels = {
        f"seeds\n{source}": label_map(seeds, cut["none"]["threshold"]),
        f"refined\n{step}": label_map(things.refined(step, seeds, "test"), cut[step]["threshold"]),
        "segmenter\ntrained on such": said(net, things.scenes["test"]),
        "truth": things.masks["test"],
    }
    two = (things.present("test").sum(1) == 2).nonzero().flatten()[:count].tolist()
    palette = torch.tensor(list(voc_palette())).view(256, 3).to(torch.uint8)
    drawn, axes = plt.subplots(len(two), 1 + len(panels), figsize=(1.6 * (1 + len(panels)), 1.62 * len(two)))
    drawn.set_layout_engine("constrained")
    for row, scene in enumerate(two):
        pictures = [to_picture(things.scenes["test"].images[scene], mean=things.mean, std=things.std)]
        pictures += [palette[masks[scene].long()].numpy() for masks in panels.values()]
        for panel, picture, title in zip(axes[row], pictures, ("image\n", *panels), strict=True):
            panel.imshow(picture)
            panel.set_axis_off()
            if row == 0:
                panel.set_title(title, fontsize=8)
        names = " and ".join(str(label) for label in sorted(things.scenes["test"].labels[scene].tolist()))
        axes[row][0].set_title(("image\n" if row == 0 else "") + names, fontsize=8)
    drawn.savefig(path, dpi=110)
    plt.close(drawn)
