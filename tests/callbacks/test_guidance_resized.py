"""Images that the training step enlarges, or whose channels it changes, are guided by the annotations of the batch."""

import pytest
import timm
import torch
import torch.nn.functional as F

import lrptrain

CHANGES = {
    "enlarged": lambda x: F.interpolate(x, (32, 32), mode="bilinear"),
    "repeated": lambda x: x[:, :1].expand(-1, 3, -1, -1),
}


@pytest.mark.parametrize("loss", ["consistency", "rrr", "energy"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_step_may_resize_the_whole_image(change, loss):
    torch.manual_seed(0)
    rows = torch.rand(4, 3, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
    mask = torch.zeros(4, 16, 16, dtype=torch.long)
    mask[:, :8, :8] = 1
    batch = {"image": rows, "label": torch.arange(4) % 2, "mask": mask}
    given = change(rows)
    sizes = {"img_size": given.shape[-1], "patch_size": 8, "embed_dim": 24, "num_heads": 2, "depth": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=2, **sizes)
    guidance = lrptrain.Guidance(loss, on_error="raise")
    if change is CHANGES["repeated"]:
        batch["image"] = rows[:, :1]
    with guidance.step(model, batch) as step:
        step.guided(F.cross_entropy(model(given), batch["label"])).backward()
    assert guidance.failures == 0
    assert guidance.values["guidance/samples"] == 4
