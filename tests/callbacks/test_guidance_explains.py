"""Guidance of models with several inputs: `explain=` says which one is explained and swapped, under every trainer."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hugging_face import quiet_arguments
from test_several_inputs import ImageAndText, TwoImages, bert, vit
from torch import Tensor, nn
from torch.utils.data import StackDataset
from transformers import Trainer

import lrptrain
from lrptrain.batch import token_annotations
from lrptrain.cues.followed import Known, note_known
from lrptrain.metrics import energy_pointing_game

N = 8


def scans() -> dict[str, Tensor]:
    """Two images a sample; the annotation is of the second."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(N, 16, 16, dtype=torch.uint8)
    mask[:, :, :4] = 1
    mri, ct = torch.randn(2, N, 1, 16, 16, generator=generator)
    return {"mri": mri, "ct": ct, "mask": mask, "labels": torch.arange(N) % 3}


def posts() -> dict[str, Tensor]:
    """An image and a text; the annotation is of the text."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 60, (N, 6), generator=generator)
    return {
        "pixel_values": torch.randn(N, 1, 16, 16, generator=generator),
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "rationale": (torch.arange(6) == 2).long().expand(N, 6),
        "labels": torch.arange(N) % 3,
    }


def of_scans() -> nn.Module:
    torch.manual_seed(0)
    return TwoImages(vit(), vit()).eval()


def of_posts() -> nn.Module:
    torch.manual_seed(0)
    return ImageAndText(vit(), bert()).eval()


CASES = {"scans": (scans, of_scans, "ct"), "posts": (posts, of_posts, "input_ids")}


def given(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x for name, x in batch.items() if name not in ("mask", "rationale", "labels")}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_that_of_the_map_of_what_is_named(case):
    batch, model, explain = (CASES[case][0](), CASES[case][1]().double(), CASES[case][2])
    batch = {name: x.double() if x.is_floating_point() else x for name, x in batch.items()}
    guidance = lrptrain.Guidance("energy", weight=1.0, method="input_x_gradient", explain=explain, on_error="raise")
    with guidance.step(model, batch) as step:
        loss = F.cross_entropy(model(**given(batch)).logits, batch["labels"])
        step.guided(loss).backward()
    found = lrptrain.attribute(model, given(batch), batch["labels"], "input_x_gradient", explain=explain)
    if case == "scans":
        columns = {"image": batch["ct"], "mask": batch["mask"]}
    else:
        columns = {"input_ids": batch["input_ids"], "rationale": batch["rationale"]}
    annotation, _ = token_annotations(columns, found.grid)
    assert annotation is not None
    # A map without positive relevance counts as one outside.
    expected = 1 - energy_pointing_game(found.scores.detach(), annotation).nan_to_num(0.0).mean()
    assert guidance.values["guidance/energy"] == pytest.approx(float(expected), rel=1e-9)


def trained(way: str, case: str, folder, **options: Any) -> tuple[dict[str, list[Tensor]], dict[str, float]]:
    """Return what the model was given under a trainer, and what was measured."""
    batch, explain = CASES[case][0](), CASES[case][2]
    model: Any = CASES[case][1]()
    seen: dict[str, list[Tensor]] = {}

    model.encoders[0].register_forward_pre_hook(lambda module, args: seen.setdefault("first", []).append(args[0]))
    model.encoders[1].register_forward_pre_hook(lambda module, args: seen.setdefault("second", []).append(args[0]))
    settings = {"on_error": "raise", "explain": explain, **options}
    dataset: Any = StackDataset(**batch)  # type: ignore[arg-type]
    if way == "loop":
        guidance = lrptrain.Guidance(**settings)
        with guidance.step(model, batch) as step:
            step.guided(F.cross_entropy(model(**given(batch)).logits, batch["labels"])).backward()
        return seen, guidance.values
    arguments = quiet_arguments(folder, num_train_epochs=1, per_device_train_batch_size=N, remove_unused_columns=True)
    hf = Trainer(model, arguments, train_dataset=dataset)
    guided = lrptrain.guide(hf, **settings)
    hf.train()
    return seen, guided.values


def test_what_is_swapped_is_the_named_input_alone(tmp_path):
    seen, values = trained("loop", "scans", tmp_path, loss="swap", weight=1.0)
    batch = scans()
    assert values["guidance/samples"] == N
    order = [int((batch["mri"] == row).flatten(1).all(1).nonzero()) for row in seen["first"][0]]
    assert sorted(order) == list(range(N)), "the first image stays as it is"
    ct = seen["second"][0]
    assert torch.equal(ct[..., :4], batch["ct"][order][..., :4])
    assert not (ct[..., 4:] == batch["ct"][order][..., 4:]).flatten(1).all(1).any()


def test_texts_beside_images_are_guided(tmp_path):
    seen, values = trained("transformers", "posts", tmp_path, loss="swap", weight=1.0)
    batch = posts()
    order = [int((batch["pixel_values"] == row).flatten(1).all(1).nonzero()) for row in seen["first"][0]]
    assert torch.equal(seen["second"][0][:, 2], batch["input_ids"][order][:, 2])
    assert not torch.equal(seen["second"][0], batch["input_ids"][order])
    assert values["guidance/samples"] == N


def test_a_name_that_the_step_does_not_give_is_refused_before_the_first_step():
    guidance = lrptrain.Guidance("swap", explain="pet", on_error="raise")
    batch, model = {**posts(), "mask": scans()["mask"]}, of_posts()
    refused = pytest.raises(ValueError, match="never called ImageAndText with an argument 'pet' of the 8 samples")
    with refused, guidance.step(model, batch) as step:
        step.guided(F.cross_entropy(model(**given(batch)).logits, batch["labels"]))


@pytest.mark.parametrize(("explain", "hint"), [("ctt", "did you mean ct"), ("labels", "known are")])
def test_a_name_that_is_no_input_of_the_batch_is_refused_with_those_that_are(explain, hint):
    guidance = lrptrain.Guidance("swap", explain=explain, on_error="raise")
    with pytest.raises(ValueError, match=rf"unknown input '{explain}'; {hint}.*mri, ct"):
        guidance.step(of_scans(), scans()).__enter__()


class OfOneCorner(nn.Module):
    """Reads the corner of the second image, and the first one not at all."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(40.0))

    def forward(self, front, side):
        corner = self.scale * (side[:, :, :4, :4].mean((1, 2, 3)) - 0.5)
        return torch.stack([-corner, corner], 1) + 0 * front.mean()


@pytest.mark.filterwarnings("ignore:Guidance. swap= takes away")
def test_what_was_found_in_one_image_is_not_swapped_in_the_other():
    label = torch.arange(32) % 2
    front, side = torch.rand(2, 32, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    side[:, :, :4, :4] = 0.3 + 0.4 * label.view(-1, 1, 1, 1)
    batch = {"front": front, "side": side, "label": label}
    model, step = OfOneCorner(), lambda model, batch: model(batch["front"], batch["side"])
    report = lrptrain.inspect(model, [batch], step=step, explain="side", max_samples=32)
    (found,) = (each for each in report.to_review if each.name == "the top left corner")
    refused = "lies in the input 'side', and 'front' is swapped: pass explain='side'"
    note_known(model, Known((found.cue,), 1, inputs=frozenset([found.input])))
    for loss in ("swap", "consistency"):
        for swap in (found, "findings"):
            for explain in ("front", "side"):
                guidance = lrptrain.Guidance(loss, swap=swap, explain=explain, on_error="raise")
                wrong = pytest.raises(ValueError, match=refused) if explain == "front" else nullcontext()
                with wrong, guidance.step(model, batch) as guided:
                    guided.guided(F.cross_entropy(step(model, batch), label))
