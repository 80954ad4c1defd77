"""A small part of the sweep (experiments/sweep): structurally different models, with the experiment's own checks."""

from collections.abc import Callable
from functools import partial

import pytest

from experiments.sweep import timm_models, transformers_models
from experiments.sweep.case import Subject
from experiments.sweep.checks import verdicts
from experiments.sweep.words import OK

METHODS = ("attnlrp", "input_x_gradient", "rollout", "generic_attention")
MAPS = ("attnlrp", "input_x_gradient")


def hugging_face(family: str, name: str, task: str = "sequence") -> Callable[[], Subject]:
    return partial(transformers_models.subject, family, name, task)


def timm(module: str, name: str) -> Callable[[], Subject]:
    return partial(timm_models.subject, module, name)


# By what is peculiar to it: the model, and the methods that serve it. The others must refuse it in one line.
SHELF: dict[str, tuple[Callable[[], Subject], tuple[str, ...]]] = {
    "attention with position biases in three parts": (
        hugging_face("deberta", "DebertaForSequenceClassification"),
        METHODS,
    ),
    "linear position bias, causal": (hugging_face("mpt", "MptForSequenceClassification"), METHODS),
    "one key for all heads": (hugging_face("gpt_bigcode", "GPTBigCodeForSequenceClassification"), METHODS),
    "rotary positions, parallel feed-forward": (hugging_face("gpt_neox", "GPTNeoXForSequenceClassification"), METHODS),
    "capped scores": (hugging_face("gemma2", "Gemma2ForSequenceClassification"), METHODS),
    "projected words": (hugging_face("opt", "OPTForSequenceClassification"), METHODS),
    "words read with their neighbours": (hugging_face("mobilebert", "MobileBertForSequenceClassification"), MAPS),
    "grouped convolutions": (hugging_face("squeezebert", "SqueezeBertForSequenceClassification"), METHODS),
    "landmarks": (hugging_face("nystromformer", "NystromformerForSequenceClassification"), MAPS),
    "positions on a page": (hugging_face("layoutlm", "LayoutLMForSequenceClassification"), METHODS),
    "words scaled in place": (hugging_face("ctrl", "CTRLForSequenceClassification"), METHODS),
    "Fourier transform": (hugging_face("fnet", "FNetForSequenceClassification"), ()),
    "windows and global tokens": (hugging_face("longformer", "LongformerForSequenceClassification"), ()),
    "masked mean of patches": (hugging_face("vit_msn", "ViTMSNForImageClassification", "image"), METHODS),
    "reduced keys": (hugging_face("pvt", "PvtForImageClassification", "image"), MAPS),
    "relative positions, mean of patches": (timm("beit", "beit_base_patch16_224"), METHODS),
    "class attention": (timm("cait", "cait_xxs24_224"), MAPS),
    "two distilled heads": (timm("deit", "deit_tiny_distilled_patch16_224"), METHODS),
    "rotary patches, gated feed-forward": (timm("eva", "eva02_tiny_patch14_224"), METHODS),
    "attention over channels": (timm("xcit", "xcit_nano_12_p8_224"), ()),
    "shifted windows": (timm("swin_transformer", "swin_s3_tiny_224"), MAPS),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHELF)
def test_a_map_is_right_or_refused_in_one_line(name):
    build, served = SHELF[name]
    said = dict(verdicts(build(), METHODS))
    assert {method for method, verdict in said.items() if verdict == OK} >= set(served), said
    assert all(verdict == OK or verdict.startswith("refused: ") for verdict in said.values()), said
