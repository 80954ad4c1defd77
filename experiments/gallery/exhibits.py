"""What the gallery shows: for each exhibit a picture and a caption whose numbers are computed with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lrptrain
from experiments.data import dataset
from experiments.gallery import models
from experiments.gallery.pictures import Picture, panels, texts
from experiments.guidance import birds, tweets
from experiments.guidance.texts import inputs
from experiments.pretrain.cifar10 import load, normalised
from experiments.short_tweets import tokenizer
from experiments.vision import MEAN, STD
from lrptrain.cues.painting import inpainted
from lrptrain.findings import Finding
from lrptrain.render import overlay, to_picture

PETS = ("Abyssinian", "Bengal", "American bulldog")
COLORS = {"mean": MEAN, "std": STD}


@dataclass(frozen=True)
class Exhibit:
    """A picture of the gallery.

    Attributes:
        name: Of its file.
        section: The heading below which it stands.
        picture: What is shown.
        caption: What is seen, by which model and method.
    """

    name: str
    section: str
    picture: Picture
    caption: str


def exhibits() -> Iterator[Exhibit]:
    """All of them, in the order of the page."""
    yield from of_digits()
    yield from of_objects()
    yield from of_pets()
    yield from of_birds()
    yield from of_texts()


# Images


@torch.no_grad()
def probabilities(net: nn.Module, image: Tensor) -> Tensor:
    """Of the classes, for one image."""
    return net(image[None]).softmax(1)[0]


def reading(net: nn.Module, image: Tensor, names: Sequence[str]) -> str:
    """What the model says, and how surely, as in "cat, 90%"."""
    probability, category = probabilities(net, image).max(0)
    return f"{names[int(category)]}, {percent(float(probability))}"


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def heat(net: nn.Module, image: Tensor, category: int, method: str = "attnlrp") -> Tensor:
    """A map for a class, [rows, columns]."""
    relevance = lrptrain.attribute(net, image[None], category, method)
    assert relevance.grid is not None
    return relevance.scores[0].unflatten(0, relevance.grid)


def inside(map_: Tensor, mask: Tensor) -> float:
    """Share of the positive relevance inside a mask."""
    size = (int(mask.shape[-2]), int(mask.shape[-1]))
    large = nn.functional.interpolate(map_[None, None], size, mode="nearest")[0, 0].clamp(min=0)
    return float((large * (mask == 1)).sum() / large.sum())


def image_and_map(
    net: nn.Module, image: Tensor, names: Sequence[str], truth: str, mask: Tensor | None = None, **colors: Any
) -> tuple[Picture, Tensor]:
    """The image beside the map of the predicted class, and that map."""
    category = int(probabilities(net, image).argmax())
    heatmap = heat(net, image, category)
    picture = panels(
        [
            (f"truth: {truth}", to_picture(image, **colors)),
            (f"read as {reading(net, image, names)}", overlay(image, heatmap, mask, **colors)),
        ]
    )
    return picture, heatmap


def of_digits() -> Iterator[Exhibit]:
    """A tag in a corner gives the class away."""
    section = "A tag on digits"
    data = models.digits_data()
    plain, guided = models.digits(False), models.digits(True)
    names = [str(digit) for digit in range(10)]
    for number, row in enumerate((4, 9), start=1):
        sample = data.splits["val"][row]
        image, mask, label = sample["image"], sample["mask"], int(sample["label"])
        maps = [heat(net, image, label) for net in (plain, guided)]
        shares = [inside(each, mask) for each in maps]
        titled = [("the image", to_picture(image))]
        for name, net, each in zip(("plain", "guided"), (plain, guided), maps, strict=True):
            titled.append((f"{name}: {reading(net, image, names)}", overlay(image, each, mask)))
        yield Exhibit(
            f"digits-{number}",
            section,
            panels(titled),
            f"A {label} with a tag in its colour. The plain ViT reads the tag ({percent(shares[0])} of the "
            "relevance on the digit, outlined), "
            f"the one guided by `consistency` the digit ({percent(shares[1])}). attnlrp.",
        )
    yield painted_corners(data.splits["val"][4], plain, names, section)


def painted_corners(sample: dict[str, Tensor], net: nn.Module, names: Sequence[str], section: str) -> Exhibit:
    """What the monitor says of the tag, and what painting over does to one image."""
    image = sample["image"]
    corners = torch.zeros(image.shape[-2:], dtype=torch.bool)
    for rows in (slice(0, 4), slice(-4, None)):
        corners[rows, :4] = corners[rows, -4:] = True
    # The control has the same shape elsewhere: moved by half of the image, around its edges.
    elsewhere = corners.roll((12, 12), (0, 1))
    changed = [inpainted(image[None], region[None])[0] for region in (corners, elsewhere)]
    finding = fault_of("digits")
    titled = [("the image", image), ("corners painted over", changed[0]), ("control", changed[1])]
    return Exhibit(
        "digits-proof",
        section,
        panels([(f"{title}: {reading(net, each, names)}", to_picture(each)) for title, each in titled]),
        "With the corners painted over, the prediction changes; with as large a place elsewhere, it stays. "
        f"{over_all(finding, 'images')}.",
    )


@cache
def objects() -> Tensor:
    """Images of CIFAR-10's test split, and their classes."""
    pixels, labels = load(dataset("cifar10"), "test", 160)
    return normalised(pixels), labels


def of_objects() -> Iterator[Exhibit]:
    """CIFAR-10."""
    section = "Small photographs, ten classes"
    net = models.cifar()
    images, labels = objects()
    seen = {
        8: ("car", "Bonnet and front wheel speak for the car, its windscreen against it."),
        52: ("ship", "The rows of windows speak for the ship, and so does a corner of the water."),
        45: ("horse", "Legs and belly speak for the horse."),
        3: ("plane", "The outline of wings and tail speaks for the plane, the middle of the fuselage against it."),
        31: ("deer", "A deer that is read as a horse: its neck speaks against that (blue), its hind legs for it."),
    }
    for row, (name, words) in seen.items():
        picture, _ = image_and_map(net, images[row], models.CIFAR, models.CIFAR[int(labels[row])], **COLORS)
        yield Exhibit(f"object-{name}", section, picture, f"{words} Small ViT, attnlrp.")
    yield many_methods(net, images[8], "automobile")
    yield two_classes(net, images[34])
    yield random_weights(net, images[8])
    yield to_the_pixels(net, images[46])


def many_methods(net: nn.Module, image: Tensor, name: str) -> Exhibit:
    """One image, several methods."""
    methods = ("attnlrp", "gamma_lrp", "transformer_attribution", "generic_attention", "input_x_gradient", "rollout")
    category = models.CIFAR.index(name)
    maps = [(method, overlay(image, heat(net, image, category, method), **COLORS)) for method in methods]
    return Exhibit(
        "methods",
        "Small photographs, ten classes",
        panels([("the image", to_picture(image, **COLORS)), *maps]),
        "One car, six methods. The signed ones show what speaks against the class, too; rollout and "
        "generic_attention have no sign. They do not agree in detail.",
    )


def two_classes(net: nn.Module, image: Tensor) -> Exhibit:
    """One image, maps of two classes, by a method that knows classes and one that does not."""
    asked = ("dog", "horse")
    titled = [("the image", to_picture(image, **COLORS))]
    for method in ("attnlrp", "rollout"):
        for name in asked:
            heatmap = heat(net, image, models.CIFAR.index(name), method)
            titled.append((f"{method}: {name}?", overlay(image, heatmap, **COLORS)))
    values = probabilities(net, image)
    numbers = ", ".join(f"{name} {percent(float(values[models.CIFAR.index(name)]))}" for name in asked)
    return Exhibit(
        "two-classes",
        "Small photographs, ten classes",
        panels(titled),
        f"What speaks for a dog, what for a horse? It is a dog ({numbers}). attnlrp has a map for each; "
        "rollout knows none, and shows the same twice.",
    )


def random_weights(net: nn.Module, image: Tensor) -> Exhibit:
    """The same maps of a network that has learnt nothing."""
    torch.manual_seed(0)
    empty = models.vit(10, 32).eval()
    category = models.CIFAR.index("automobile")
    titled = [("the image", to_picture(image, **COLORS))]
    for method in ("attnlrp", "rollout"):
        for name, each in (("trained", net), ("random weights", empty)):
            titled.append((f"{method}, {name}", overlay(image, heat(each, image, category, method), **COLORS)))
    return Exhibit(
        "random-weights",
        "Small photographs, ten classes",
        panels(titled),
        "The same two methods on the trained ViT and on one with random weights. A map that looks the same for "
        "both would say nothing about the model.",
    )


def to_the_pixels(net: nn.Module, image: Tensor) -> Exhibit:
    """Relevance of patches, and of pixels."""
    category = models.CIFAR.index("horse")
    relevance = lrptrain.attribute(net, image[None], category, "gamma_lrp")
    assert relevance.input is not None
    patches = relevance.scores[0].unflatten(0, relevance.grid or ())
    titled = [("the image", to_picture(image, **COLORS))]
    titled += [
        (title, overlay(image, each, **COLORS))
        for title, each in (("patches", patches), ("pixels", relevance.input[0]))
    ]
    return Exhibit(
        "pixels",
        "Small photographs, ten classes",
        panels(titled),
        f"A horse ({reading(net, image, models.CIFAR)}) by gamma_lrp, which reaches the input: per patch, and "
        "per pixel. A patch's score is the sum of its pixels'.",
    )


def of_pets() -> Iterator[Exhibit]:
    """Three breeds, with the pets outlined."""
    net, data = models.pet_breeds()
    test = data["test"]
    seen = {
        21: ("bengal", "The shoulder speaks for the Bengal, and so does some of the grass."),
        8: ("bulldog", "Head, chest and back speak for the bulldog."),
        25: ("wall", "An Abyssinian that is read as a bulldog. The white wall speaks for it, not the cat."),
    }
    for row, (name, words) in seen.items():
        truth, mask = PETS[int(test.labels[row])], test.masks[row]
        picture, heatmap = image_and_map(net, test.images[row], PETS, truth, mask, **COLORS)
        share, area = inside(heatmap, mask), float((mask == 1).float().mean())
        yield Exhibit(
            f"pet-{name}",
            "Pets",
            picture,
            f"{words} {percent(share)} of the positive relevance lies on the pet (its area: {percent(area)}). "
            "Fine-tuned ViT, attnlrp.",
        )


def of_birds() -> Iterator[Exhibit]:
    """All training birds stood on their own background."""
    section = "Birds that learnt their background"
    every = birds.birds("test")
    order = torch.randperm(len(every.label), generator=torch.Generator().manual_seed(0))[:40]
    data = every.chosen(order)
    net = models.bird_kinds(False)
    for row, name, words in (
        (33, "sea", "A land bird before the sea: the waves speak for a water bird."),
        (9, "bamboo", "A water bird in a bamboo wood: a stem speaks for a land bird."),
    ):
        truth, mask = models.BIRDS[int(data.label[row])], data.mask[row]
        picture, heatmap = image_and_map(net, data.image[row], models.BIRDS, truth, mask, **COLORS)
        share, area = inside(heatmap, mask), float((mask == 1).float().mean())
        caption = (
            f"{words} {percent(share)} of the positive relevance lies in the box (its area: {percent(area)}). "
            "Fine-tuned ViT, attnlrp."
        )
        yield Exhibit(f"bird-{name}", section, picture, caption)
    yield swapped_surroundings(net, data, section)


def swapped_surroundings(net: nn.Module, data: birds.Birds, section: str) -> Exhibit:
    """What the monitor says of the surroundings, and what others do to one bird."""
    bird, donors = 33, {"of a wood": 9, "of another sea": 16}
    mask = data.mask[bird] == 1
    titled = [("the image", data.image[bird])]
    titled += [
        (f"surroundings {name}", torch.where(mask, data.image[bird], data.image[row])) for name, row in donors.items()
    ]
    finding = fault_of("birds")
    return Exhibit(
        "bird-proof",
        section,
        panels(
            [(f"{title}: {reading(net, each, models.BIRDS)}", to_picture(each, **COLORS)) for title, each in titled]
        ),
        "The same bird with other surroundings: those of a wood turn it into a land bird, those of another sea "
        "do not. "
        f"{over_all(finding, 'images')}, which the maps alone do not show.",
    )


def fault_of(name: str) -> Finding:
    """The first fault that a monitor finds in a model."""
    return next(each for each in models.findings(name) if each.is_fault)


def over_all(finding: Finding, samples: str) -> str:
    """What the exchange says over all samples."""
    return (
        f"Monitor, {finding.samples} {samples}: {finding.name} of another answer moves the probability by "
        f"{100 * finding.effect:.0f} points"
    )


# Texts


def encoded(text: str) -> dict[str, Tensor]:
    return dict(tokenizer()(text, return_tensors="pt"))


def line(
    net: nn.Module, batch: dict[str, Tensor], category: int | None = None, method: str = "attnlrp", title: str = ""
) -> tuple[str, list[str], np.ndarray, list[int]]:
    """What `pictures.texts` draws of one text, without its padding."""
    count = int(batch["attention_mask"].sum())
    batch = {name: value[:, :count] if value.ndim == 2 else value for name, value in batch.items()}
    with torch.no_grad():
        values = net(**inputs(batch)).logits.softmax(1)[0]
    read = int(values.argmax())
    scores = lrptrain.attribute(net, inputs(batch), read if category is None else category, method).scores[0]
    tokens = tokenizer().convert_ids_to_tokens(batch["input_ids"][0])
    rationale = batch["rationale"][0].tolist() if "rationale" in batch else [0] * count
    caption = f"read as {models.MOODS[read]}, {percent(float(values[read]))}"
    return f"{title}{', ' if title else ''}{caption}", tokens, scores.numpy(), rationale


def of_texts() -> Iterator[Exhibit]:
    """Tweets and sentences."""
    section = "Tweets and sentences"
    net = models.mood(False)
    without = tweets.tweets("val", None, 0)
    for number, row in enumerate((3, 12), start=1):
        truth = models.MOODS[int(without["label"][row])]
        review = {name: value[row : row + 1] for name, value in without.items()}
        yield Exhibit(
            f"tweet-{number}",
            section,
            texts([line(net, review, title=f"truth: {truth}")]),
            "A tweet: red words speak for the mood that the model reads, blue ones against it; people "
            "underlined what carries the mood. MiniLM, attnlrp.",
        )
    sentences = ("the plot is good", "the plot is not good", "the plot is not bad at all")
    yield Exhibit(
        "negation",
        section,
        texts([line(net, encoded(sentence)) for sentence in sentences]),
        "Three sentences that the model has never seen, each with the map of what it reads. MiniLM fine-tuned "
        "on tweets, attnlrp.",
    )
    # The longest of the first tweets: methods differ most where there is much to choose from.
    longest = int(without["attention_mask"][:40].sum(1).argmax())
    review = {name: value[longest : longest + 1] for name, value in without.items()}
    methods = ("attnlrp", "leave_one_out", "generic_attention", "rollout", "raw_attention")
    yield Exhibit(
        "text-methods",
        section,
        texts([line(net, review, method=method, title=method) for method in methods]),
        "One tweet, five methods. leave_one_out asks the model again without each word, and finds 'thank' and "
        "'awesome'; attnlrp names the same two, attention spreads over all words. MiniLM.",
    )
    yield from of_planted_words()


def of_planted_words() -> Iterator[Exhibit]:
    """A word in each tweet gives its mood away."""
    section = "A planted word"
    plain, guided = models.mood(True), models.mood(True, True)
    data = tweets.tweets("val", 1.0, 0)
    finding = next(each for each in models.findings("tweets") if "census" in each.name)
    assert finding.relevance is not None
    assert finding.area is not None
    ids = data["sample_id"].tolist()
    row = ids.index(finding.worst_samples[0]) if finding.worst_samples[0] in ids else int(finding.worst_samples[0])
    tweet = {name: value[row : row + 1] for name, value in data.items()}
    yield Exhibit(
        "planted-word",
        section,
        texts([line(plain, tweet, title="plain")]),
        "Each negative training tweet holds the word 'census'. The model reads that word: "
        f"{percent(finding.relevance)} of the relevance lies on it (an even map: "
        f"{percent(finding.area)}). attnlrp.",
    )
    word = tokenizer().convert_tokens_to_ids("census")
    control = int(tweet["attention_mask"].sum()) // 2
    rest = [("as it is", tweet), ("without 'census'", dropped(tweet, lambda place, token: token == word))]
    rest.append(("control", dropped(tweet, lambda place, token: place == control and token != word)))
    yield Exhibit(
        "planted-word-proof",
        section,
        texts([line(plain, batch, category=0, title=title) for title, batch in rest]),
        f"Without the word the answer turns; without another word it stays. {over_all(finding, 'tweets')}.",
    )
    yield Exhibit(
        "planted-word-guided",
        section,
        texts([line(net, tweet, category=0, title=title) for title, net in (("plain", plain), ("guided", guided))]),
        "The same tweet, read by the plain model and by one that was guided by `consistency` with the "
        "underlined words. A part of the relevance moves from the planted word to the one that people marked. "
        "The answer is less sure.",
    )


def dropped(batch: dict[str, Tensor], drop: Callable[[int, int], bool]) -> dict[str, Tensor]:
    """A text without some of its tokens."""
    count = int(batch["attention_mask"].sum())
    remaining = [place for place, token in enumerate(batch["input_ids"][0, :count].tolist()) if not drop(place, token)]
    return {name: value[:, remaining] if value.ndim == 2 else value for name, value in batch.items()}
