"""Ready LightningModules for timm and Hugging Face classifiers; lrptrain itself needs none of them."""

from lrptrain.models.classifier import ImageClassifier, TextClassifier

__all__ = ["ImageClassifier", "TextClassifier"]
