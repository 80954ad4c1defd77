"""Datamodules whose batches carry the evidence: planted shortcuts, images with masks, texts with rationales."""

from lrptrain.data.eraser import EraserDocuments
from lrptrain.data.image_folder import ImageMaskFolder
from lrptrain.data.planted import PlantedDigits
from lrptrain.data.segmentation_folders import COCOFolder, VOCFolder
from lrptrain.data.text_csv import TextSpans

__all__ = ["COCOFolder", "EraserDocuments", "ImageMaskFolder", "PlantedDigits", "TextSpans", "VOCFolder"]
