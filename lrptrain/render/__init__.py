"""Relevance as a picture or as highlighted text; knows no logger."""

from lrptrain.render.image import enlarge, outlined, overlay, to_picture, to_pixels
from lrptrain.render.pair import TitledPair, beside, titled_pair
from lrptrain.render.sheet import contact_sheet
from lrptrain.render.signals import spectrogram, video_frames, waveform
from lrptrain.render.text import token_ansi, token_html, token_markdown, token_words
from lrptrain.render.words import Word, join_words, scored_tokens, visible

__all__ = [
    "TitledPair",
    "Word",
    "beside",
    "contact_sheet",
    "enlarge",
    "join_words",
    "outlined",
    "overlay",
    "scored_tokens",
    "spectrogram",
    "titled_pair",
    "to_picture",
    "to_pixels",
    "token_ansi",
    "token_html",
    "token_markdown",
    "token_words",
    "video_frames",
    "visible",
    "waveform",
]
