"""The models of the gallery, trained as their users would, and what the monitor says of each at the end."""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments import pets
from experiments.data import dataset
from experiments.guidance import birds, tweets
from experiments.guidance.texts import inputs
from experiments.minilm import network
from experiments.short_tweets import tokenizer
from experiments.vision import vit
from lrptrain.cli.demo import demo
from lrptrain.data import PlantedDigits
from lrptrain.findings import Finding
from lrptrain.models import ImageClassifier

RUNS = Path(__file__).resolve().parents[1] / "runs" / "gallery"
SEED = 0
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MOODS = ["negative", "positive"]
BIRDS = ["land bird", "water bird"]


@cache
def digits_data() -> PlantedDigits:
    """The demo's data: in training and validation a tag gives the digit away, in the test images there is none."""
    data = PlantedDigits(
        shortcut="tag", correlation=1.0, seed=SEED, image_size=24, digit_size=20, train_size=4800, batch_size=64
    )
    data.setup()
    return data


@cache
def digits(guided: bool) -> nn.Module:
    """A model of `lrptrain demo`, plain or guided."""
    if not (RUNS / "demo" / "guided" / "model.ckpt").exists():
        demo(str(RUNS / "demo"))
    path = RUNS / "demo" / ("guided" if guided else "plain") / "model.ckpt"
    return ImageClassifier.load_from_checkpoint(path, map_location="cpu").eval()


@cache
def cifar() -> nn.Module:
    """The pre-trained ViT as it is."""
    return vit(10, 32, dataset("vit")).eval()


@cache
def pet_breeds() -> tuple[nn.Module, dict[str, pets.Split]]:
    """The pre-trained ViT, fine-tuned on three breeds, and their images."""
    return pets.trained(dataset("pets"), dataset("vit"), SEED)


@cache
def bird_kinds(guided: bool) -> nn.Module:
    """The pre-trained ViT, fine-tuned on birds that all stand on their own background, plain or guided by boxes."""
    net = birds.network(SEED)
    loader = DataLoader(birds.Augmented(birds.birds("train")), 32, shuffle=True)
    guidance: dict[str, Any] | None = {"loss": "consistency", "weight": 10.0} if guided else None
    return kept(f"birds_{guided}", net, lambda: fine_tune(net, loader, 120, 1e-3, guidance))


@cache
def mood(planted: bool, guided: bool = False) -> nn.Module:
    """MiniLM's first blocks, fine-tuned on tweets; with a planted word in each, plain or guided by rationales."""
    net = network(SEED)
    texts = tweets.tweets("train", 1.0 if planted else None, SEED)
    loader = DataLoader(StackDataset(**texts), 16, shuffle=True)
    guidance = {"loss": "consistency", "weight": 10.0} if guided else None
    return kept(f"tweets_{planted}_{guided}", net, lambda: fine_tune(net, loader, 150, 3e-4, guidance))


def kept(name: str, net: nn.Module, train: Any) -> nn.Module:
    """Train a model once; afterwards it comes from `experiments/runs/gallery`."""
    path = RUNS / f"{name}.pt"
    if path.exists():
        net.load_state_dict(torch.load(path, weights_only=True))
    else:
        train()
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(net.state_dict(), path)
        print(f"trained {name}", flush=True)
    return net.eval()


def fine_tune(net: nn.Module, loader: DataLoader, steps: int, lr: float, guidance: dict[str, Any] | None) -> None:
    """AdamW with a one-cycle schedule; guided, if there are options for it."""
    torch.manual_seed(SEED)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)
    guide = lrptrain.Guidance(**guidance, optimizer=optimizer) if guidance else None
    net.train()
    for batch in islice(endless(loader), steps):
        if guide is None:
            F.cross_entropy(logits(net, batch), batch["label"]).backward()
        else:
            with guide.step(net, batch) as step:
                step.guided(F.cross_entropy(logits(net, batch), batch["label"])).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def endless(loader: DataLoader) -> Iterator[dict[str, Tensor]]:
    """Its batches, epoch after epoch."""
    while True:
        yield from loader


def logits(net: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Of a batch of images or texts."""
    return net(batch["image"]) if "image" in batch else net(**inputs(batch)).logits


@cache
def findings(name: str) -> list[Finding]:
    """What a monitor says of one of the models: "digits", "birds" or "tweets", plain, or with " guided" behind it."""
    kind, guided = name.split()[0], name.endswith("guided")
    samples: Any
    options: dict[str, Any] = {"max_samples": 128, "show": lrptrain.Show(max_pictures=0)}
    if kind == "digits":
        net, samples = digits(guided), digits_data().val_dataloader()
    elif kind == "birds":
        # All four groups: half of the birds stand on the other's background.
        data = birds.birds("val")
        columns = {"image": data.image, "mask": data.mask, "label": data.label}
        net, samples = bird_kinds(guided), DataLoader(StackDataset(**columns), 50)
        options |= {"show": lrptrain.Show(max_pictures=0, class_names=BIRDS)}
    else:
        net, texts = mood(True, guided), tweets.tweets("val", 1.0, SEED)
        samples = DataLoader(StackDataset(**texts), 32)
        options |= {"show": lrptrain.Show(max_pictures=0, class_names=MOODS), "tokenizer": tokenizer()}
    quiet = lrptrain.Run(progress_bar=False)
    with lrptrain.Monitor(net, samples, RUNS / "monitor", run=quiet, **options) as monitor:
        monitor.evaluate(0)
    return monitor.findings
