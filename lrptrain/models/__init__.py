"""Ready LightningModules for timm and Hugging Face classifiers; lrptrain itself needs none of them."""

from lrptrain.models.image import ImageClassifier
from lrptrain.models.text import TextClassifier

__all__ = ["ImageClassifier", "TextClassifier"]
