r"""Relevance as a picture or as highlighted text; knows no logger.

Examples:
    >>> import numpy as np, torch
    >>> from lrptrain.render import *
    >>> image, heat = torch.rand(3, 16, 16), torch.rand(4, 4)
    >>> overlay(image, heat).shape, beside(image, heat).shape, to_picture(image).shape, to_pixels(image).shape
    ((160, 160, 3), (160, 328, 3), (160, 160, 3), (16, 16, 3))
    >>> titled_pair(image, heat, title="cat").top, contact_sheet([to_pixels(image)], ["cat"]).ndim
    (17, 3)
    >>> enlarge(to_pixels(image), 32).shape, outlined(to_picture(image), np.zeros((160, 160), bool)).shape
    ((32, 32, 3), (160, 160, 3))
    >>> spectrogram(heat, heat).ndim, waveform(heat[0], heat[0]).shape, video_frames(image[None], heat[None]).ndim
    (3, (96, 640, 3), 3)
    >>> tokens, scores = ["[CLS]", "a", "good", "film"], np.array([0.0, 0.1, 1.0, 0.2])
    >>> token_markdown(tokens, scores)
    '\\[CLS\\] a **good** film'
    >>> "good" in token_html(tokens, scores), "good" in token_ansi(tokens, scores), scored_tokens(tokens)
    (True, True, array([False,  True,  True,  True]))
    >>> [word.text for word in join_words(["act", "##ing"], [True, True], [False, False])], visible("a")
    (['acting'], 'a')
    >>> token_words(tokens, scores)
    '[CLS] a good film\nstrongest (+ for the class, - against it): good +1.00, film +0.20, a +0.10'
"""

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
