"""CelebA, MultiNLI and CivilComments as they are published, each sample with its group."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import normalize, pil_to_tensor, resize

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224
NEGATION = frozenset({"nobody", "no", "never", "nothing"})
"""Sagawa et al. 2020, appendix C.1: words of the second sentence that go with contradiction."""
NLI = ("contradiction", "entailment", "neutral")
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
"""Koh et al. 2021, WILDS: a comment may mention several."""
Split = list[dict[str, Any]]
"""Samples: `label`, `group` for training, `groups` that it is counted in by the test, and what the model is given."""


@dataclass(frozen=True)
class Published:
    """A data set.

    Attributes:
        splits: `train`, `val` and `test`.
        classes: Their names.
        groups: How many `group`s there are.
        images: Whether it is of images.
    """

    splits: dict[str, Split]
    classes: Sequence[str]
    groups: int
    images: bool = False


def celeba(root: Path, limit: int | None = None) -> Published:
    """Is the hair blond? All groups of that and of the attribute Male (Sagawa et al. 2020)."""
    with (root / "list_attr_celeba.txt").open(encoding="utf-8") as file:
        next(file)  # their number
        names = next(file).split()
        blond, male = names.index("Blond_Hair"), names.index("Male")
        attributes = {name: (values[blond] == "1", values[male] == "1") for name, *values in map(str.split, file)}
    splits: dict[str, Split] = {"train": [], "val": [], "test": []}
    with (root / "list_eval_partition.txt").open(encoding="utf-8") as file:
        for name, part in map(str.split, file):
            label, place = map(int, attributes[name])
            group = 2 * label + place
            sample = {"image": root / "img_align_celeba" / name, "label": label, "group": group, "groups": [group]}
            splits[("train", "val", "test")[int(part)]].append(sample)
    return Published(_limited(splits, limit), ("not blond", "blond"), 4, images=True)


def multinli(root: Path, limit: int | None = None) -> Published:
    """Does the second sentence follow? Groups of the answer and of a negation in the second sentence.

    Sagawa et al. 2020 draw all splits anew from the labelled pairs; here the published training pairs are divided, one
    in ten for validation, and the published matched ones are the test.
    """
    train = list(_pairs(root / "multinli_1.0_train.jsonl"))
    test = list(_pairs(root / "multinli_1.0_dev_matched.jsonl"))
    rest = [each for number, each in enumerate(train) if number % 10]
    return Published(_limited({"train": rest, "val": train[::10], "test": test}, limit), NLI, 6)


def _pairs(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for pair in map(json.loads, file):
            if pair["gold_label"] not in NLI:
                continue  # "-": the annotators do not agree
            words = {word.strip(".,;:!?\"'()").lower() for word in pair["sentence2"].split()}
            label = NLI.index(pair["gold_label"])
            group = 2 * label + bool(words & NEGATION)
            yield {"text": (pair["sentence1"], pair["sentence2"]), "label": label, "group": group, "groups": [group]}


def civilcomments(root: Path, limit: int | None = None) -> Published:
    """Is the comment toxic? Trained on groups of that and of "black", tested on those of each of eight identities."""
    splits: dict[str, Split] = {"train": [], "val": [], "test": []}
    with (root / "all_data_with_identities.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            label = int(float(row["toxicity"]) >= 0.5)
            mentioned = [name for name in IDENTITIES if float(row[name] or 0) >= 0.5]
            groups = [2 * IDENTITIES.index(name) + label for name in mentioned]
            group = 2 * label + ("black" in mentioned)
            sample = {"text": row["comment_text"], "label": label, "group": group, "groups": groups}
            splits[row["split"]].append(sample)
    return Published(_limited(splits, limit), ("civil", "toxic"), 4)


def _limited(splits: Mapping[str, Split], limit: int | None) -> dict[str, Split]:
    return {name: list(islice(split, limit)) for name, split in splits.items()}


READERS: dict[str, Callable[[Path, int | None], Published]] = {
    "celeba": celeba,
    "multinli": multinli,
    "civilcomments": civilcomments,
}


def batched(samples: Split, tokenizer: Any = None, longest: int = 220) -> dict[str, Tensor]:
    """A batch in the form of `lrptrain.models`, with its groups."""
    batch = {name: torch.tensor([each[name] for each in samples]) for name in ("label", "group")}
    if tokenizer is None:
        return {"image": torch.stack([_picture(each["image"]) for each in samples]), **batch}
    texts = [each["text"] if isinstance(each["text"], tuple) else (each["text"],) for each in samples]
    columns = (list(column) for column in zip(*texts, strict=True))
    encoded = tokenizer(*columns, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")} | batch


def _picture(path: Path) -> Tensor:
    with Image.open(path) as file:
        image = pil_to_tensor(file.convert("RGB"))
    return normalize(resize(image, [SIZE, SIZE], antialias=True) / 255, list(MEAN), list(STD))
