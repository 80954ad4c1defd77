"""Kinds of input: what is a token of them, what `scores` and `input` hold, what is taken away with a token."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from live_memory import peak_of
from model_zoo import in_float64, randomised, select
from small_models import Block, tiny_vit
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.passes.rerun import without

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
VIDEO = {**SIZES, "image_size": 16, "patch_size": 8, "num_frames": 4}
WAVES: dict[str, Any] = {
    **SIZES, "conv_dim": (8, 8, 8), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 2), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8, "vocab_size": 10,
}  # fmt: skip
WHISPER = {
    "num_mel_bins": 8, "max_source_positions": 20, "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "classifier_proj_size": 8, "vocab_size": 50, "pad_token_id": 1, "bos_token_id": 2,
    "eos_token_id": 3, "decoder_start_token_id": 4,
}  # fmt: skip
AST = {**SIZES, "patch_size": 8, "frequency_stride": 4, "time_stride": 4, "max_length": 32, "num_mel_bins": 24}
TEXT = {**SIZES, "vocab_size": 50, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
SIGLIP2 = {"vision_config": {**SIZES, "num_patches": 16, "patch_size": 4}, "text_config": TEXT}
REACHING = ("attnlrp", "input_x_gradient")
ALL = (*REACHING, "generic_attention", "rollout")


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def hugging_face(family: str, **options: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, family.split("For")[0] + "Config")(**options, num_labels=3)
    return in_float64(randomised(getattr(transformers, family)(config)))


def masked_waves() -> dict[str, Tensor]:
    mask = torch.ones(2, 400, dtype=torch.long)
    mask[1, 260:] = 0
    return {"input_values": numbers(2, 400) * mask, "attention_mask": mask}


def patched() -> dict[str, Tensor]:
    mask = torch.tensor([[1] * 12, [1] * 6 + [0] * 6])
    return {
        "pixel_values": numbers(2, 12, 48),
        "pixel_attention_mask": mask,
        "spatial_shapes": torch.tensor([[3, 4], [2, 3]]),
    }


# Name: model, inputs, kind, tokens, grid, shape of `Relevance.input`, methods.
CASES: dict[str, tuple[Callable[[], nn.Module], Any, str, int, Any, list[int], tuple[str, ...]]] = {
    "VideoMAE": (lambda: hugging_face("VideoMAEForVideoClassification", tubelet_size=2, **VIDEO),
        {"pixel_values": numbers(2, 4, 3, 16, 16)}, "video", 8, (2, 2, 2), [2, 4, 16, 16], ALL),
    "ViViT": (lambda: hugging_face("VivitForVideoClassification", **{**VIDEO, "tubelet_size": [2, 8, 8]}),
        {"pixel_values": numbers(2, 4, 3, 16, 16)}, "video", 8, (2, 2, 2), [2, 4, 16, 16], ALL),
    "TimeSformer": (lambda: hugging_face("TimesformerForVideoClassification", **VIDEO),
        {"pixel_values": numbers(2, 4, 3, 16, 16)}, "video", 16, (4, 2, 2), [2, 4, 16, 16], ("input_x_gradient",)),
    "AST": (lambda: hugging_face("ASTForAudioClassification", **AST),
        {"input_values": numbers(2, 32, 24)}, "spectrogram", 35, (5, 7), [2, 32, 24], ALL),
    "Whisper": (lambda: hugging_face("WhisperForAudioClassification", **WHISPER),
        {"input_features": numbers(2, 8, 40)}, "spectrogram", 20, None, [2, 8, 40], ALL),
    "Wav2Vec2": (lambda: hugging_face("Wav2Vec2ForSequenceClassification", **WAVES),
        {"input_values": numbers(2, 400)}, "waveform", 19, None, [2, 400], ALL),
    "Wav2Vec2, mask": (
        lambda: hugging_face("Wav2Vec2ForSequenceClassification", **WAVES, feat_extract_norm="layer"),
        masked_waves(), "waveform", 19, None, [2, 400], ALL),
    "SEW": (lambda: hugging_face("SEWForSequenceClassification", **WAVES, squeeze_factor=2),
        {"input_values": numbers(2, 400)}, "waveform", 9, None, [2, 400], ALL),
    "SigLIP 2": (lambda: hugging_face("Siglip2ForImageClassification", **SIGLIP2),
        patched(), "sequence", 12, None, [2, 12, 48], REACHING),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_kinds_of_input(name):
    build, inputs, kind, tokens, grid, shape, methods = CASES[name]
    model = build()
    recording = lrptrain.record(model, inputs)
    assert recording.explained.kind == kind
    for method in methods:
        found = recording.attribute(1, method)
        assert found.grid == grid
        assert found.scores.shape == (2, tokens)
        for row in range(2):
            single = lrptrain.attribute(model, select(inputs, slice(row, row + 1)), 1, method)
            assert (single.scores - found.scores[row]).abs().max() <= 1e-9 * found.scores.abs().max()
        if method in REACHING:
            assert found.input is not None
            assert list(found.input.shape) == shape
        content = 1.0 if recording.padding is None else recording.padding
        assert torch.equal(found.scores, found.scores * content)


@pytest.mark.parametrize("name", CASES)
def test_scores_sum_what_is_taken_away_with_a_token(name):
    build, inputs, _, tokens, *_ = CASES[name]
    recording = lrptrain.record(build(), inputs)
    assert recording.tape.leaf is not None
    leaf = recording.tape.leaf.detach()
    rows = torch.zeros(tokens, dtype=torch.long)
    left, _ = without(recording, torch.ones_like(leaf), ~torch.eye(tokens, dtype=torch.bool), rows)
    relevance = numbers(*leaf.shape)
    expected = torch.stack([(relevance[0] * (1 - one)).sum() for one in left])
    assert (recording.explained.scores(relevance)[0] - expected).abs().max() < 1e-10
    # Every place belongs to one token.
    assert bool(((1 - left).sum(0) == 1).all())


def test_the_mask_of_a_waveform_counts_in_frames_of_its_encoder():
    build, inputs, *_ = CASES["Wav2Vec2, mask"]
    recording = lrptrain.record(build(), inputs)
    assert recording.padding is not None
    assert recording.padding[0].all()
    # 260 samples of 400, in frames of 20 that begin at sample 5: (260 - 5) / 20 of them.
    assert recording.padding[1].tolist() == [True] * 13 + [False] * 6


def test_a_mask_that_fits_nothing_is_named():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3).double()

        def forward(self, features: Tensor, attention_mask: Tensor) -> Tensor:
            return self.head(features).mean(1)

    inputs = {"features": numbers(2, 5, 6), "attention_mask": torch.ones(2, 6)}
    with pytest.raises(ValueError, match=r"the mask \[2, 6\] fits neither the 5 tokens"):
        lrptrain.attribute(Model(), inputs, method="input_x_gradient")


# Models of one's own


class Patches(nn.Module):
    """Tokens that a function of the image makes, through one attention block."""

    def __init__(self, tokens: Callable[[Tensor], Tensor], width: int, embed: nn.Module | None = None):
        super().__init__()
        self.tokens, self.embed = tokens, embed or nn.Identity()
        self.project, self.qkv, self.head = nn.Linear(width, 8), nn.Linear(8, 24), nn.Linear(8, 3)
        self.position = nn.Parameter(torch.zeros(1, 1, 8))
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.project(self.tokens(self.embed(x))) + self.position
        q, k, v = self.qkv(tokens).chunk(3, -1)
        return self.head((tokens + F.scaled_dot_product_attention(q, k, v)).mean(1))


def cut(x: Tensor) -> Tensor:
    """Patches of 4 x 4 pixels by a reshape, as ViTs in plain torch have them."""
    batch, channels, height, width = x.shape
    x = x.view(batch, channels, height // 4, 4, width // 4, 4).permute(0, 2, 4, 3, 5, 1)
    return x.reshape(batch, height * width // 16, -1)


ORDER = torch.randperm(24, generator=torch.Generator().manual_seed(3))


def with_prefix(x: Tensor) -> Tensor:
    return torch.cat([torch.ones(len(x), 2, x.shape[-1], dtype=x.dtype), x], 1)


MODELS = {
    "reshape": (lambda: Patches(cut, 48), (3, 16, 24)),
    "any order": (lambda: Patches(lambda x: with_prefix(cut(x)[:, ORDER]), 48), (3, 16, 24)),
    "convolution, any order": (
        lambda: Patches(lambda x: x.flatten(2).mT[:, ORDER], 5, nn.Conv2d(3, 5, 4, 4)),
        (3, 16, 24),
    ),
    "channels last": (
        lambda: Patches(lambda x: x.flatten(2).mT, 5, nn.Sequential(Permuted(0, 3, 1, 2), nn.Conv2d(3, 5, 4, 4))),
        (16, 24, 3),
    ),
    "transposed": (
        lambda: Patches(lambda x: x.flatten(2).mT, 5, nn.Sequential(Permuted(0, 1, 3, 2), nn.Conv2d(3, 5, 4, 4))),
        (3, 16, 24),
    ),
    "padded": (
        lambda: Patches(lambda x: x.flatten(2).mT, 5, nn.Sequential(nn.ZeroPad2d((0, 1, 0, 2)), nn.Conv2d(3, 5, 4, 4))),
        (3, 14, 23),
    ),
    "remainder": (lambda: Patches(lambda x: x.flatten(2).mT, 5, nn.Conv2d(3, 5, 4, 4)), (3, 18, 27)),
    "stem": (
        lambda: Patches(
            lambda x: x.flatten(2).mT, 5, nn.Sequential(nn.Conv2d(3, 4, 2, 2), nn.ReLU(), nn.Conv2d(4, 5, 2, 2))
        ),
        (3, 16, 24),
    ),
    "space to depth": (
        lambda: Patches(
            lambda x: x.flatten(2).mT, 5, nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, 5, 2, 2))
        ),
        (3, 16, 24),
    ),
}  # fmt: skip


class Permuted(nn.Module):
    def __init__(self, *axes: int):
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.axes)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_changes_with_its_own_pixels_only(name):
    build, shape = MODELS[name]
    model = build()
    images = numbers(2, *shape)
    recording = lrptrain.record(model, images)
    layout = recording.layout
    assert layout.grid == (4, 6)
    embedded: list[Tensor] = []
    model.project.register_forward_hook(lambda *x: embedded.append(x[-1]))
    model(images)
    axis = 3 if shape[-1] == 3 else 1
    for token, position in enumerate(layout.positions):
        row, column = divmod(token, 6)
        changed = images.movedim(axis, 1).clone()
        changed[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1
        model(changed.movedim(1, axis))
        moved = (embedded[-1] - embedded[0]).abs().amax((0, 2)) > 1e-12
        assert moved.nonzero().flatten().tolist() == [position]
        # And these pixels are what the token's score is summed over.
        difference = (changed - images.movedim(axis, 1)).movedim(1, axis)
        counts = recording.explained.scores(difference)[0]
        assert counts.nonzero().flatten().tolist() == [token]


@pytest.mark.parametrize("name", MODELS)
def test_scores_sum_to_the_input_for_any_size(name):
    build, shape = MODELS[name]
    found = lrptrain.attribute(build(), numbers(2, *shape), 1, "input_x_gradient")
    assert found.input is not None
    assert (found.scores.sum(1) - found.input.flatten(1).sum(1)).abs().max() < 1e-12


def test_features_without_weights_say_nothing_of_where_tokens_are():
    model = MODELS["any order"][0]()
    images = numbers(2, 3, 16, 24)
    positions = lrptrain.record(model, images).layout.positions
    with torch.no_grad():
        model.qkv.weight[[0, 5]] = 0
    assert lrptrain.record(model, images).layout.positions == positions


def test_an_input_that_does_not_arrive_at_the_tokens_is_refused():
    model = Patches(lambda x: with_prefix(cut(x))[:, :2], 48)
    with pytest.raises(lrptrain.UnsupportedModelError, match=r"no axis of the input .* is read as channels"):
        _ = lrptrain.record(model, numbers(2, 3, 16, 24)).explained


def test_merged_tokens_are_refused_with_the_numbers_that_are_known():
    model = Patches(lambda x: F.avg_pool1d(x.flatten(2), 2).mT, 5, nn.Conv2d(3, 5, 4, 4))
    message = r"24 tokens .*image on a grid of 4 x 6.* the 12 tokens .*layout=TokenLayout\(length=12, positions=..., "
    with pytest.raises(lrptrain.UnsupportedModelError, match=message):
        lrptrain.attribute(model, numbers(2, 3, 16, 24), 1, "generic_attention")


def test_convolutional_models_have_the_grid_of_their_last_feature_map():
    model = randomised(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1),
            nn.Flatten(), nn.Linear(4, 3),
        )
    )  # fmt: skip
    found = lrptrain.attribute(model, numbers(2, 3, 16, 24), 1, "attnlrp")
    assert found.grid == (4, 6)
    assert found.input is not None
    expected = found.input.view(2, 4, 4, 6, 4).sum((2, 4)).flatten(1)
    assert (found.scores - expected).abs().max() < 1e-12


def test_tables_have_a_score_per_entry():
    model = randomised(nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)))
    inputs = numbers(2, 7)
    found = lrptrain.attribute(model, inputs, 1, "input_x_gradient")
    gradient = torch.func.jacrev(lambda x: model(x)[:, 1].sum())(inputs)
    assert (found.scores - inputs * gradient).abs().max() < 1e-12
    assert found.grid is None


def test_images_without_patches_have_a_score_per_pixel():
    model = randomised(nn.Sequential(nn.Flatten(), nn.Linear(40, 3)))
    found = lrptrain.attribute(model, numbers(2, 1, 5, 8), 1, "attnlrp")
    assert found.grid == (5, 8)
    assert found.input is not None
    assert torch.equal(found.scores, found.input.flatten(1))
    with pytest.raises(lrptrain.UnsupportedModelError, match=r"which axis .* channels .*; pass layout="):
        lrptrain.attribute(model, numbers(2, 2, 5, 4), 1, "attnlrp")
    layout = lrptrain.TokenLayout(20, tuple(range(20)), (5, 4))
    shaped = lrptrain.attribute(model, numbers(2, 2, 5, 4), 1, "attnlrp", layout=layout).input
    assert shaped is not None
    assert shaped.shape == (2, 5, 4)


def test_a_given_grid_counts():
    model, images = MODELS["reshape"][0](), numbers(2, 3, 16, 24)
    layout = lrptrain.TokenLayout(24, tuple(range(24)), (2, 3))
    found = lrptrain.attribute(model, images, 1, "input_x_gradient", layout=layout)
    assert found.scores.shape == (2, 6)
    with pytest.raises(ValueError, match=r"layout\.grid must have 2 numbers"):
        lrptrain.attribute(
            model, images, 1, "input_x_gradient", layout=lrptrain.TokenLayout(24, tuple(range(24)), (1, 2, 3))
        )


def test_maps_of_videos_as_images():
    build, inputs, *_ = CASES["VideoMAE"]
    found = lrptrain.attribute(build(), inputs, 1, "attnlrp")
    assert found.to_image(16).shape == (2, 2, 16, 16)
    assert torch.equal(found.to_image(2).flatten(1), found.scores)
    with pytest.raises(ValueError, match=r"is of a video.*: take a model of single frames, or explain videos by"):
        _ = found.image_grid


def test_patches_of_the_same_size_form_a_grid():
    model = CASES["SigLIP 2"][0]()
    inputs = {**patched(), "spatial_shapes": torch.tensor([[3, 4], [3, 4]]), "pixel_attention_mask": torch.ones(2, 12)}
    assert lrptrain.attribute(model, inputs, 1, "input_x_gradient").grid == (3, 4)
    assert lrptrain.attribute(model, patched(), 1, "input_x_gradient").grid is None


# Advice


def test_advice_never_names_the_method_that_was_called():
    model = Patches(lambda x: F.avg_pool1d(x.flatten(2), 2).mT, 5, nn.Conv2d(3, 5, 4, 4))
    for method in ("generic_attention", "rollout"):
        with pytest.raises(lrptrain.UnsupportedModelError) as raised:
            lrptrain.attribute(model, numbers(2, 3, 16, 24), 1, method)
        assert method not in str(raised.value)
    unknown = Patches(lambda x: x.flatten(2).mT.diff(dim=1), 5, nn.Conv2d(3, 5, 4, 4))
    with pytest.raises(lrptrain.UnsupportedOperationError, match="diff") as raised_by_lrp:
        lrptrain.attribute(unknown, numbers(2, 3, 16, 24), 1, "lrp")
    assert re.search(r"a method .*\(input_x_gradient, .*\blrp\b.*\)", str(raised_by_lrp.value)) is None


# -- The memory that numbering takes ----------------------------------------------------------------------------------


def mean_of_tokens(x: Tensor) -> Tensor:
    return x.mean(1)


def numbering(model: nn.Module, inputs: Tensor) -> int:
    """Bytes at the peak of finding out which token each place belongs to."""
    recording = lrptrain.record(model.eval(), inputs, differentiable=False)
    return peak_of(lambda: recording.explained)


@pytest.mark.parametrize("mirrored", [False, True])
def test_parts_of_an_image_are_looked_at_together(mirrored):
    """In the last part, all numbers of a feature are of one column; in all parts they are not."""
    turned = Block(lambda x: x.flip(3) if mirrored else x)
    embed = nn.Sequential(Permuted(0, 3, 1, 2), turned, nn.Conv2d(2, 5, 4, 4))
    recording = lrptrain.record(Patches(lambda x: x.flatten(2).mT, 5, embed), numbers(2, 8, 8, 2))
    assert recording.explained.features == (3,)
    assert recording.explained.owner.view(8, 8)[::4, ::4].tolist() == [[0, 1], [2, 3]]
    assert recording.layout.positions == ((1, 0, 3, 2) if mirrored else (0, 1, 2, 3))


def test_numbers_of_pixels_take_few_bytes_each():
    image = torch.randn(1, 3, 256, 256)
    # Numbers in float32; cell and token of every pixel, a third of the entries, 8 bytes each; and of an eighth of the
    # entries at a time: two numbers and two coordinates of 4 bytes, two indices of 8, a flag.
    assert (
        numbering(tiny_vit(img_size=256, patch_size=32), image) < (4 + 2 * 8 / 3 + (4 * 4 + 2 * 8 + 1) / 8) * 3 * 256**2
    )
    # Of a large image, a twelfth of the entries at a time.
    large = torch.randn(1, 3, 1024, 512)
    twelfth = (4 + 2 * 8 / 3 + (4 * 4 + 2 * 8 + 1) / 12) * large.numel()
    assert numbering(tiny_vit(img_size=(1024, 512), patch_size=128), large) < twelfth
    # Pixels that are moved: numbers, where they go, the same of zeros, the outcome, and where it is a constant.
    moving = nn.Sequential(Block(cut), nn.Linear(48, 3), Block(mean_of_tokens))
    assert numbering(moving, image) <= (4 * 4 + 1) * 3 * 256**2


def test_numbers_of_a_sequence_grow_as_it_does():
    def memory(steps: int) -> int:
        return numbering(nn.Sequential(nn.Linear(8, 3), Block(mean_of_tokens)), torch.randn(1, steps, 8))

    assert memory(1024) < 4.1 * memory(256)


def test_tokens_are_followed_with_little_memory():
    """Once the widest states of all tokens, of float64, and what comes of them in front of the products: a third."""
    recording = lrptrain.record(tiny_vit(img_size=64).eval(), torch.randn(1, 3, 64, 64), differentiable=False)
    assert recording.explained.tokens == 256
    assert peak_of(lambda: recording.layout) < 1.5 * 257 * 3 * 16 * 8
