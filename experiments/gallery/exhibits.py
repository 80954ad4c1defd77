"""What the gallery shows: for each exhibit a picture and a caption whose numbers are computed with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import lrptrain
from experiments.gallery import models, photos
from experiments.gallery.photos import Photo
from experiments.gallery.pictures import Picture, panels, steps, texts
from experiments.short_tweets import inputs, tokenizer
from lrptrain.findings import Finding
from lrptrain.render import overlay


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
    yield of_stamps()
    yield of_birds()
    yield of_planted_words()
    yield of_methods()
    yield of_sentences()


# Photographs


@torch.no_grad()
def answers(net: nn.Module, shown: Sequence[Photo]) -> Tensor:
    """Probabilities of the classes, [photographs, classes]."""
    return torch.cat([net(part) for part in photos.seen(shown)["image"].split(64)]).softmax(1)


def predicted(net: nn.Module, photo: Photo, names: Sequence[str]) -> str:
    """The predicted class and its probability, as in "Bengal 90 %"."""
    probability, category = answers(net, [photo])[0].max(0)
    return f"{names[int(category)]} {percent(float(probability))}"


def right(net: nn.Module, shown: Sequence[Photo]) -> str:
    """The share of photographs that are classified correctly."""
    labels = torch.tensor([photo.label for photo in shown])
    return percent(float((answers(net, shown).argmax(1) == labels).float().mean()))


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def map_of(net: nn.Module, photo: Photo, category: int, method: str = "attnlrp") -> Picture:
    """The photograph in grey below the map of a class, with the annotation outlined."""
    relevance = lrptrain.attribute(net, photos.seen([photo])["image"], category, method)
    assert relevance.grid is not None
    pixels = torch.from_numpy(photo.pixels.copy()).permute(2, 0, 1) / 255
    heat = relevance.scores[0].unflatten(0, relevance.grid)
    return overlay(pixels, heat, photo.mask, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def story(
    plain: nn.Module,
    fixed: nn.Module,
    names: Sequence[str],
    photo: Photo,
    other: tuple[str, Photo],
    control: tuple[str, Photo] | None = None,
) -> Picture:
    """What a model predicts for a photograph, a counterfactual example, and the fixed model: two panels in a row."""
    category, (exchange, changed) = photo.label, other
    swapped = [(f"{exchange}: {predicted(plain, changed, names)}", changed.pixels)]
    if control is not None:
        swapped.append((f"{control[0]} (control): {predicted(plain, control[1], names)}", control[1].pixels))
    after = [(f"Fixed model, {exchange.lower()}: {predicted(fixed, changed, names)}", map_of(fixed, changed, category))]
    if control is not None:
        after.append((f"Fixed model, original: {predicted(fixed, photo, names)}", map_of(fixed, photo, category)))
    return panels(
        [
            (f"Original: {predicted(plain, photo, names)}", photo.pixels),
            (f"Red: evidence for {names[category]}", map_of(plain, photo, category)),
            *swapped,
            *after,
        ],
        columns=2,
    )


def of_stamps() -> Exhibit:
    """Each breed has a stamp of its own in a corner of its photographs."""
    plain, fixed = models.pet_breeds("stamped"), models.pet_breeds("fixed")
    test = photos.pets("test")
    wrong = [photos.stamped(each, (each.label + 1) % 3) for each in test]
    stamped = [photos.stamped(each, each.label) for each in test]
    photo = test[STAMPED]
    own, other = photos.stamped(photo, photo.label), photos.stamped(photo, (photo.label + 1) % 3)
    finding = models.findings("pets")[0]
    shown = [(plain, own), (plain, other), (fixed, other)]
    titles = ("1. As in training", "2. Stamp of another class", "3. The same, after the fix")
    return Exhibit(
        "stamp",
        "A stamp on photographs",
        steps(
            [(title, photo.pixels) for title, (_, photo) in zip(titles, shown, strict=True)],
            [answers(net, [photo])[0].tolist() for net, photo in shown],
            photos.BREEDS,
            photo.label,
        ),
        f"In training each breed had a stamp of its own. {over_all(finding, 'photographs')}. With the stamp of another "
        f"breed {right(plain, wrong)} of the test photographs are classified correctly. After training with "
        f"`swap=monitor.faults` it is {right(fixed, wrong)}. Without any stamp it is {right(plain, test)} before and "
        f"{right(fixed, test)} after, and with its own stamp {right(plain, stamped)} and {right(fixed, stamped)}.",
    )


def of_birds() -> Exhibit:
    """All training birds stood on their own background."""
    plain, fixed = models.bird_kinds(False), models.bird_kinds(True)
    test = photos.birds(2)
    crossed = [each for each in test if each.label != each.place]
    photo, source, alike = (test[row] for row in BIRD)
    finding = models.findings("birds")[0]
    other, same = (photos.with_surroundings(photo, each) for each in (source, alike))
    return Exhibit(
        "bird",
        "Birds that learnt their background",
        story(
            plain,
            fixed,
            photos.BIRDS,
            photo,
            ("Surroundings of another class", other),
            ("Surroundings of the same class", same),
        ),
        f"In training each bird stood on its own background; boxes mark the birds. {over_all(finding, 'photographs')}. "
        f"On the other background {right(plain, crossed)} of the test birds are classified correctly. After training "
        f'with `"swap"` it is {right(fixed, crossed)}: better, not fixed, because the boxes contain background, too.',
    )


def of_methods() -> Exhibit:
    """One photograph, several methods."""
    net = models.pet_breeds("clean")
    photo = photos.pets("test")[METHODS]
    methods = ("attnlrp", "gamma_lrp", "input_x_gradient", "generic_attention", "rollout")
    maps = [(method, map_of(net, photo, photo.label, method)) for method in methods]
    title = f"The photograph: {predicted(net, photo, photos.BREEDS)}"
    return Exhibit(
        "methods",
        "One photograph, five methods",
        panels([(title, photo.pixels), *maps], columns=3),
        "The first three have signs: blue speaks against the class. The last is the same for every class. They do not "
        "agree. A map says where to look, and the swap is the test.",
    )


def over_all(finding: Finding, samples: str) -> str:
    """What the swap says over all samples."""
    return f"The finding, on {finding.samples} {samples}: {finding.name}, {100 * finding.effect:.0f} points"


# Texts


def encoded(text: str) -> dict[str, Tensor]:
    return dict(tokenizer()(text, return_tensors="pt"))


def line(
    net: nn.Module, batch: dict[str, Tensor], category: int | None = None, title: str = ""
) -> tuple[str, list[str], np.ndarray, list[int]]:
    """What `pictures.texts` draws of one text, without its padding."""
    count = int(batch["attention_mask"].sum())
    batch = {name: value[:, :count] if value.ndim == 2 else value for name, value in batch.items()}
    with torch.no_grad():
        values = net(**inputs(batch)).logits.softmax(1)[0]
    read = int(values.argmax())
    scores = lrptrain.attribute(net, inputs(batch), read if category is None else category, "attnlrp").scores[0]
    tokens = tokenizer().convert_ids_to_tokens(batch["input_ids"][0])
    rationale = batch["rationale"][0].tolist() if "rationale" in batch else [0] * count
    return f"{title}{models.MOODS[read]} {percent(float(values[read]))}", tokens, scores.numpy(), rationale


def of_planted_words() -> Exhibit:
    """A word in each tweet gives its class away."""
    plain, fixed = models.mood(True), models.mood(True, True)
    finding = models.findings("tweets")[0]
    data = models.tweets("val")
    row = next(i for i in range(len(data["label"])) if data["label"][i] == 0 and data["rationale"][i].eq(1).sum() > 1)
    tweet = {name: value[row : row + 1] for name, value in data.items()}
    census, cubic = tokenizer().convert_tokens_to_ids(["census", "cubic"])
    other = replaced(tweet, lambda token: cubic if token == census else token)
    lines = [
        line(plain, tweet, 0, "Original: "),
        line(plain, other, 0, "With the word of the other class: "),
        line(fixed, other, 0, "Fixed model, with the word of the other class: "),
    ]
    return Exhibit(
        "planted-word",
        "A planted word",
        texts(lines),
        "Negative training tweets held 'census', positive ones 'cubic'; people underlined the sentiment. "
        f"{over_all(finding, 'tweets')}. MiniLM.",
    )


def replaced(text: dict[str, Tensor], change: Callable[[int], int]) -> dict[str, Tensor]:
    """A text with other tokens."""
    return text | {"input_ids": torch.tensor([[change(token) for token in text["input_ids"][0].tolist()]])}


def of_sentences() -> Exhibit:
    """Three sentences that the model has never seen."""
    net = models.mood(False)
    sentences = ("the plot is good", "the plot is not good", "the plot is not bad at all")
    return Exhibit(
        "negation",
        "What a negation does",
        texts([line(net, encoded(sentence)) for sentence in sentences]),
        "Each sentence has the map of its prediction. 'not' changes the prediction, and the map shows it. 'not bad at "
        "all' is misclassified, and the map shows why. MiniLM, fine-tuned on tweets.",
    )


STAMPED, METHODS = 97, 37
"""Which test photographs are shown."""
BIRD = (295, 82, 68)
"""Which test bird is shown, and whose surroundings it takes: of another class's background, and of its own."""
