"""Ready targets: what is explained where a model's output is not one row of class logits per sample.

`lrptrain.attribute(model, inputs, target=lrptrain.targets.TokenTarget(token=4, category=2))`; any function
`output -> [batch]` is a target, too.
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
