"""Pre-training from nothing: a run that was cut off goes on as if nothing had happened, and its file is taken."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from experiments.pretrain.recipes import RECIPES
from experiments.pretrain.training import Training
from experiments.vision import vit

SMALL = replace(RECIPES["vit_s"], width=32, depth=2, batch=8)
STEPS = 12


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Images of noise, and classes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return pixels, torch.arange(64) % 10


def started() -> Training:
    return Training(SMALL, STEPS, seed=3, device=torch.device("cpu"))


def test_a_training_that_was_cut_off_ends_with_the_weights_of_one_that_was_not(tmp_path):
    uninterrupted = started()
    assert uninterrupted.run(*data(), tmp_path / "uninterrupted.state.pt")
    first = started()
    for _ in range(5):
        first._step(*data())
    first.save(tmp_path / "state.pt")
    torch.manual_seed(99)  # whatever another process draws
    second = started()
    second.load(tmp_path / "state.pt")
    assert second.done == 5
    assert second.run(*data(), tmp_path / "state.pt")
    for name, weights in uninterrupted.model.state_dict().items():
        assert torch.equal(weights, second.model.state_dict()[name]), name


def test_time_that_is_up_ends_a_call_not_the_training(tmp_path):
    training = started()
    assert not training.run(*data(), tmp_path / "state.pt", seconds=0.0)
    assert training.done == 0
    again = started()
    again.load(tmp_path / "state.pt")
    assert again.run(*data(), tmp_path / "state.pt")


def test_the_state_of_another_training_is_refused(tmp_path):
    started().save(tmp_path / "state.pt")
    with pytest.raises(ValueError, match="is of 12 steps, not 24"):
        Training(SMALL, 24, seed=3, device=torch.device("cpu")).load(tmp_path / "state.pt")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_makes_batches_that_its_model_takes(name):
    recipe = RECIPES[name]
    pixels, labels = data()
    torch.manual_seed(0)
    mixed = 0
    for _ in range(20):
        images, targets = recipe.batch_of(pixels, labels)
        assert images.shape == pixels.shape
        assert images.isfinite().all()
        if targets.dim() == 2:
            mixed += 1
            torch.testing.assert_close(targets.sum(1), torch.ones(64))
    assert 20 * recipe.mixing - 8 < mixed < 20 * recipe.mixing + 8  # over three standard deviations of a binomial


def test_a_vit_has_the_shape_of_its_weights(tmp_path):
    torch.manual_seed(0)
    saved = vit(10, 32, width=384, depth=2).eval()
    save_file(saved.state_dict(), tmp_path / "vit.safetensors")
    taken = vit(10, 32, tmp_path / "vit.safetensors").eval()
    assert taken.get_submodule("blocks.0.attn").num_heads == 6  # of a ViT-S
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(taken(images), saved(images))
    assert vit(3, 48, tmp_path / "vit.safetensors")(torch.randn(2, 3, 48, 48)).shape == (2, 3)
