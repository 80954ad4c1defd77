"""The ready targets: what they read of an output, and what they refuse in one line."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import lrptrain
from lrptrain import targets

GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


LOGITS = numbers(3, 4)
TOKENS = numbers(3, 5, 4)
MAPS = numbers(3, 4, 2, 2)
PAIRS = numbers(3, 3)
EMBEDDINGS = numbers(3, 6)
ROWS = torch.arange(3)
MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]])
REGION = torch.tensor([[True, False], [True, True]])
ANSWER = SimpleNamespace(start_logits=numbers(3, 5), end_logits=numbers(3, 5))
TEXT = numbers(6)

# A target, an output, and the numbers that it reads.
READ: list[tuple[targets.Target, Any, Tensor]] = [
    (targets.ClassifierOutputTarget(2), LOGITS, LOGITS[:, 2]),
    (targets.ClassifierOutputTarget(cast(Any, np.array([2, 0, 1]))), {"logits": LOGITS}, LOGITS[ROWS, [2, 0, 1]]),
    (targets.MultiLabelTarget([0, 3]), LOGITS, LOGITS[:, [0, 3]].sum(1)),
    (targets.BinaryClassifierOutputTarget([1, 0, 1]), LOGITS[:, :1], LOGITS[:, 0] * torch.tensor([1, -1, 1])),
    (targets.RawScoresOutputTarget(), {"prediction": LOGITS[:, 0]}, LOGITS[:, 0]),
    (targets.EntryTarget((1, 2)), TOKENS, TOKENS[:, 1, 2]),
    (targets.EntryTarget([(1, 2), (0, 0), (4, 3)]), TOKENS, TOKENS[ROWS, [1, 0, 4], [2, 0, 3]]),
    (targets.TokenTarget(1, [2, 0, 3]), SimpleNamespace(logits=TOKENS), TOKENS[ROWS, 1, [2, 0, 3]]),
    (targets.TokenTarget(torch.tensor([1, 0, 4]), 2), TOKENS, TOKENS[ROWS, [1, 0, 4], 2]),
    (targets.NextTokenTarget(3), TOKENS, TOKENS[:, -1, 3]),
    (targets.NextTokenTarget([3, 1, 0], MASK), TOKENS, TOKENS[ROWS, [2, 4, 4], [3, 1, 0]]),
    (targets.SpanTarget(1, [2, 3, 4]), ANSWER, ANSWER.start_logits[:, 1] + ANSWER.end_logits[ROWS, [2, 3, 4]]),
    (targets.SemanticSegmentationTarget(1, REGION), {"out": MAPS}, MAPS[:, 1][:, REGION].mean(1)),
    (
        targets.SemanticSegmentationTarget([1, 0, 2], torch.stack([REGION, ~REGION, REGION])),
        MAPS,
        torch.stack([MAPS[0, 1][REGION].mean(), MAPS[1, 0][~REGION].mean(), MAPS[2, 2][REGION].mean()]),
    ),
    (targets.QueryTarget(2, 4), {"pred_logits": TOKENS}, TOKENS[:, 4, 2]),
    (targets.QueryTarget([2, 1, 0]), TOKENS, TOKENS[ROWS, :, [2, 1, 0]].amax(1)),
    (targets.ImageTextSimilarityTarget(), {"logits_per_image": PAIRS}, PAIRS.diagonal()),
    (targets.ImageTextSimilarityTarget(text=1), LOGITS, LOGITS[:, 1]),
    (targets.ImageTextSimilarityTarget(image=1), {"logits_per_image": LOGITS.T}, LOGITS[:, 1]),
    (
        targets.EmbeddingSimilarityTarget(TEXT),
        {"image_embeds": EMBEDDINGS},
        F.cosine_similarity(EMBEDDINGS, TEXT[None]),
    ),
    (
        targets.EmbeddingSimilarityTarget(EMBEDDINGS.flip(0), "mine"),
        {"mine": EMBEDDINGS},
        F.cosine_similarity(EMBEDDINGS, EMBEDDINGS.flip(0)),
    ),
]


@pytest.mark.parametrize(("target", "output", "expected"), READ, ids=lambda x: type(x).__name__)
def test_what_they_read(target: targets.Target, output: Any, expected: Tensor):
    torch.testing.assert_close(target(output), expected, rtol=1e-12, atol=1e-12)


def rows_of(output: Any, rows: Tensor) -> Any:
    if isinstance(output, Tensor):
        return output[rows]
    if isinstance(output, dict):
        return {name: x[rows] for name, x in output.items()}
    return SimpleNamespace(**{name: x[rows] for name, x in vars(output).items()})


@pytest.mark.parametrize(("target", "output", "expected"), READ, ids=lambda x: type(x).__name__)
def test_some_samples(target: targets.Target, output: Any, expected: Tensor):
    rows = torch.tensor([2, 0, 2, 1])
    some = target.of_samples(rows)
    if isinstance(target, targets.ImageTextSimilarityTarget):
        paired = target.text is None and target.image is None
        assert some is (target if paired else None)
    else:
        assert some is not None
        torch.testing.assert_close(some(rows_of(output, rows)), expected[rows], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("target", "output", "message"),
    [
        (
            targets.ClassifierOutputTarget(4),
            LOGITS,
            r"ClassifierOutputTarget: category 4 is out of range for 4 \(0 to 3\)",
        ),
        (targets.ClassifierOutputTarget(0), TOKENS, r"needs \[batch, classes\].*a tensor of shape \[3, 5, 4\]"),
        (targets.ClassifierOutputTarget([0, 1]), LOGITS, r"one integer, or one per sample \(here 3\), not \[0, 1\]"),
        (targets.ClassifierOutputTarget(True), LOGITS, "must be one integer"),
        (targets.MultiLabelTarget([]), LOGITS, "categories is empty"),
        (targets.BinaryClassifierOutputTarget(), LOGITS, r"needs one number per sample.*\[3, 4\]"),
        (targets.RawScoresOutputTarget(), {"loss": LOGITS}, r"dict with loss \[3, 4\]"),
        (targets.TokenTarget(5, 0), TOKENS, r"token 5 is out of range for 5"),
        (targets.TokenTarget(-1, 0), TOKENS, "token -1 is out of range"),
        (targets.NextTokenTarget(0, MASK[:, :3]), TOKENS, r"attention_mask must be \[3, 5\].*not \[3, 3\]"),
        (targets.SpanTarget(0, 0), LOGITS, "needs start_logits and end_logits"),
        (targets.SpanTarget(0, 0), {"logits": LOGITS}, r"as a tensor or as start_logits; .* dict with logits \[3, 4\]"),
        (targets.SemanticSegmentationTarget(0, torch.ones(4, 4)), MAPS, r"mask must be \[2, 2\].*not \[4, 4\]"),
        (targets.SemanticSegmentationTarget(0, torch.zeros(2, 2)), MAPS, "mask is empty"),
        (targets.QueryTarget(0, 9), TOKENS, "query 9 is out of range for 5"),
        (targets.ImageTextSimilarityTarget(), LOGITS, "pairs images with texts, and there are 3 and 4"),
        (targets.ImageTextSimilarityTarget(1, 1), PAIRS, "takes text= or image="),
        (targets.ImageTextSimilarityTarget(), {"logits": LOGITS}, "as logits_per_image"),
        (targets.EmbeddingSimilarityTarget(TEXT[:2]), EMBEDDINGS, r"embedding must be \[6\] or \[3, 6\]"),
        (targets.BoxScoreTarget(1, (0, 0, 1, 1)), LOGITS, "needs a list of dicts with boxes.*QueryTarget"),
    ],
)
def test_what_they_refuse(target: targets.Target, output: Any, message: str):
    with pytest.raises(ValueError, match=message) as raised:
        target(output)
    assert "\n" not in str(raised.value)


def detections() -> list[dict[str, Tensor]]:
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.0], [5.0, 5.0, 9.0, 9.0]])
    found = {"boxes": boxes, "labels": torch.tensor([1, 1, 2]), "scores": torch.tensor([0.9, 0.8, 0.7])}
    return [found, {name: x[[0, 2]] for name, x in found.items()}]


def test_a_box_that_was_detected():
    near = (0.0, 0.0, 4.0, 3.0)
    assert targets.BoxScoreTarget(1, near)(detections()).tolist() == pytest.approx([0.8, 0.9])
    assert targets.BoxScoreTarget(2, [(5, 5, 9, 9)] * 2)(detections()).tolist() == pytest.approx([0.7, 0.7])
    with pytest.raises(ValueError, match=r"sample 0 has no detection of class 2 that overlaps.*classes \[1, 1, 2\]"):
        targets.BoxScoreTarget(2, near)(detections())
    with pytest.raises(ValueError, match="3 boxes for 2 samples"):
        targets.BoxScoreTarget(2, [near] * 3)(detections())
    gone = targets.BoxScoreTarget(2, [near, (5, 5, 9, 9)]).of_samples(torch.tensor([1, 0]))
    assert gone(detections()).tolist() == pytest.approx([0.7, 0.0])


def test_all_of_them_are_public():
    classes = {name for name, entry in vars(lrptrain.relevance.targets).items() if isinstance(entry, type)}
    own = {name for name in classes if name.endswith("Target")}
    assert own <= set(targets.__all__)


class Segmenter(torch.nn.Module):
    """Class logits for every patch, as a decoder makes them."""

    def __init__(self) -> None:
        super().__init__()
        from small_models import Small

        self.model = Small()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.model.after = torch.nn.Identity()
        states: list[Tensor] = []
        handle = self.model.after.register_forward_hook(lambda _, inputs, output: states.append(output))
        self.model(x)
        handle.remove()
        return {"out": self.model.head(states[0]).transpose(1, 2).unflatten(2, (4, 4))}


def test_a_region_of_a_segmentation():
    from small_models import patches

    region = torch.zeros(4, 4)
    region[1, 2:] = 1
    target: Any = targets.SemanticSegmentationTarget(1, region)
    recording = lrptrain.record(Segmenter(), patches())
    by_rows = (recording.attribute((1, 1, column), "attnlrp").scores for column in (2, 3))
    found = recording.attribute(target, "attnlrp")
    torch.testing.assert_close(found.scores, torch.stack(list(by_rows)).mean(0))
    # The region's two patches are what the last states are read from.
    raw = recording.attribute(target, "raw_attention").scores
    each = torch.stack([recording.attribute((1, 1, column), "raw_attention").scores for column in (2, 3)])
    torch.testing.assert_close(raw, each.mean(0))
    as_product = recording.attribute(lambda output: (output["out"][:, 1] * region).sum((1, 2)), "raw_attention")
    torch.testing.assert_close(as_product.scores, raw)
