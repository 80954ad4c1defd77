"""Ready targets: what is explained where a model's output is not one row of class logits per sample.

`lrptrain.attribute(model, inputs, target=lrptrain.targets.TokenTarget(token=4, category=2))`; any function
`output -> [batch]` is a target, too.

Examples:
    >>> import torch
    >>> from lrptrain.targets import *
    >>> logits, tokens = torch.tensor([[0.0, 1.0, 2.0]]), torch.arange(6.0).view(1, 2, 3)
    >>> ClassifierOutputTarget(1)(logits), MultiLabelTarget([1, 2])(logits), ImageTextSimilarityTarget(text=2)(logits)
    (tensor([1.]), tensor([3.]), tensor([2.]))
    >>> BinaryClassifierOutputTarget(0)(logits[:, 2]), RawScoresOutputTarget()(logits[:, 2])
    (tensor([-2.]), tensor([2.]))
    >>> TokenTarget(token=1, category=2)(tokens), NextTokenTarget(0)(tokens), EntryTarget((0, 1))(tokens)
    (tensor([5.]), tensor([3.]), tensor([1.]))
    >>> QueryTarget(category=1)(tokens), QueryTarget(category=1, query=0)(tokens)
    (tensor([4.]), tensor([1.]))
    >>> SpanTarget(start=0, end=2)({"start_logits": logits, "end_logits": logits})
    tensor([2.])
    >>> SemanticSegmentationTarget(0, mask=torch.tensor([[1, 0, 1]]))(logits.view(1, 1, 1, 3))
    tensor([1.])
    >>> EmbeddingSimilarityTarget(torch.tensor([0.0, 0.0, 1.0]))(torch.tensor([[0.0, 3.0, 4.0]]))
    tensor([0.8000])
    >>> found = {"boxes": torch.tensor([[0.0, 0.0, 9.0, 9.0]]), "labels": torch.tensor([1]), "scores": torch.rand(1)}
    >>> BoxScoreTarget(category=1, box=(0, 0, 9, 8))([found]).shape
    torch.Size([1])
"""

from lrptrain.relevance.targets import (
    BinaryClassifierOutputTarget,
    BoxScoreTarget,
    ClassifierOutputTarget,
    EmbeddingSimilarityTarget,
    EntryTarget,
    ImageTextSimilarityTarget,
    MultiLabelTarget,
    NextTokenTarget,
    QueryTarget,
    RawScoresOutputTarget,
    SemanticSegmentationTarget,
    SpanTarget,
    Target,
    TokenTarget,
)

__all__ = [
    "BinaryClassifierOutputTarget",
    "BoxScoreTarget",
    "ClassifierOutputTarget",
    "EmbeddingSimilarityTarget",
    "EntryTarget",
    "ImageTextSimilarityTarget",
    "MultiLabelTarget",
    "NextTokenTarget",
    "QueryTarget",
    "RawScoresOutputTarget",
    "SemanticSegmentationTarget",
    "SpanTarget",
    "Target",
    "TokenTarget",
]
