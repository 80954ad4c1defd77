"""Relevance as a picture or as highlighted text; knows no logger."""

from lrptrain.render.image import enlarge, overlay, to_picture, to_pixels
from lrptrain.render.sheet import contact_sheet
from lrptrain.render.signals import spectrogram, video_frames, waveform
from lrptrain.render.text import join_tokens, scored_tokens, token_ansi, token_html, token_markdown

__all__ = [
    "contact_sheet",
    "enlarge",
    "join_tokens",
    "overlay",
    "scored_tokens",
    "spectrogram",
    "to_picture",
    "to_pixels",
    "token_ansi",
    "token_html",
    "token_markdown",
    "video_frames",
    "waveform",
]
