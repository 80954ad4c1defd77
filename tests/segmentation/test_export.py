from dataclasses import replace
from typing import Any

import pytest
import torch
from classified import classifier, fitted, squares
from torch.utils.data import DataLoader, StackDataset

from lrptrain.data.pictures import read_mask
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import DEFAULT_THRESHOLD, PseudoMaskConfig
from lrptrain.segmentation.export import SeedGenerator, run_export
from lrptrain.segmentation.images import image_batches, read_images
from lrptrain.segmentation.masks import best_threshold, label_map, pseudo_masks
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.seeds import seed_maps

QUICK = PseudoMaskConfig("generic_attention", scales=(1,), flip=False)


def source(columns, batch_size=5):
    loader: DataLoader = DataLoader(StackDataset(**columns), batch_size=batch_size)
    return lambda: image_batches(loader)


def run(folder, model=None, config=QUICK, columns=None, validation=True, split="train"):
    given = source(columns or squares())
    val = source(squares(8, seed=2)) if validation else None
    return run_export(model or classifier(), config, given, folder, split, lambda n: [str(i) for i in range(n)], val)


def test_an_export_holds_what_the_functions_give(tmp_path):
    model, columns, held_out = classifier(), squares(), squares(8, seed=2)
    scores = run(tmp_path, model, PseudoMaskConfig("generic_attention", scales=(1, 0.5), refine=None), columns)
    maps, val = (
        seed_maps(model, x["image"], torch.eye(2).bool()[x["label"]], "generic_attention", scales=(1, 0.5))
        for x in (columns, held_out)
    )
    threshold, _ = best_threshold(val, held_out["mask"] * (1 + held_out["label"])[:, None, None].to(torch.uint8))
    assert export_files.read_json_file(tmp_path / "thresholds.json") == {"seeds": threshold, "masks": threshold}
    expected = label_map(maps, threshold)
    names = [f"train_{i:06d}" for i in range(12)]
    for name, mask in zip(names, expected, strict=True):
        assert torch.equal(read_mask(tmp_path / export_files.SEEDS / f"{name}.png"), mask)
    assert [entry.classes for entry in export_files.read_index(tmp_path)] == [(label,) for label in columns["label"]]
    truth = columns["mask"] * (1 + columns["label"])[:, None, None].to(torch.uint8)
    score = MaskScore(2)
    score.update(expected, truth)
    assert scores["train"]["seeds"]["mean_iou"] == pytest.approx(score.compute()["mean_iou"].item())
    assert scores["train"]["seeds"] == scores["train"]["refined"]  # nothing was refined
    masks = torch.stack([read_mask(tmp_path / export_files.MASKS / f"{name}.png") for name in names])
    # Ignored is what is near the threshold, measured by it: a low one has a narrow band, and a background.
    assert torch.equal(masks, pseudo_masks(maps, 0.85 * threshold, 1.15 * threshold))
    decided = MaskScore(2)
    decided.update(masks, torch.where(masks == 255, masks, truth))
    assert scores["train"]["masks"]["mean_iou"] == pytest.approx(decided.compute()["mean_iou"].item())
    assert scores["train"]["masks"]["decided"] == pytest.approx((masks != 255).float().mean().item())
    assert 0 < scores["train"]["masks"]["decided"] < 1
    assert (tmp_path / export_files.LISTS / "train.txt").read_text().split() == names
    assert export_files.read_classes(tmp_path) == ["0", "1"]


def test_an_image_of_another_split_with_the_same_name_is_refused(tmp_path):
    """It would be taken for done, and the split have no masks."""
    names = [f"{i:03d}" for i in range(12)]
    run(tmp_path, columns={**squares(), "sample_id": names})
    run(tmp_path, columns={**squares(), "sample_id": names})  # the same split goes on
    with pytest.raises(ValueError, match=r"two images are called '000', one of them of the val split"):
        run(tmp_path, columns={**squares(12, seed=3), "sample_id": names}, split="val")


def test_a_classifier_finds_the_squares(tmp_path):
    scores = run(tmp_path, fitted(), PseudoMaskConfig("transformer_attribution", refine_options={"dilations": (1, 2)}))
    assert scores["train"]["refined"]["mean_iou"] > 0.5
    centre = MaskScore(2)
    guess = torch.zeros(12, 16, 16, dtype=torch.uint8)
    columns = squares()
    guess[:, 4:12, 4:12] = (1 + columns["label"])[:, None, None].to(torch.uint8)
    centre.update(guess, columns["mask"] * (1 + columns["label"])[:, None, None].to(torch.uint8))
    assert scores["train"]["refined"]["mean_iou"] > centre.compute()["mean_iou"] + 0.05


def test_an_export_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(whole)
    write, count = export_files.write_image_files, iter(range(100))

    def stops(*arguments, **options):
        if next(count) == 7:
            raise KeyboardInterrupt
        return write(*arguments, **options)

    monkeypatch.setattr(export_files, "write_image_files", stops)
    with pytest.raises(KeyboardInterrupt):
        run(cut)
    assert len(export_files.finished_names(cut)) == 7
    (cut / export_files.MASKS / "train_000002.png").unlink()  # half of it was lost
    made: list[str] = []

    def noted(folder, given, *rest):
        made.append(given.name)
        return write(folder, given, *rest)

    monkeypatch.setattr(export_files, "write_image_files", noted)
    assert run(cut, validation=False) == export_files.read_json_file(whole / "scores.json")  # its thresholds are known
    assert made == ["train_000002", *(f"train_{i:06d}" for i in range(7, 12))]
    for path in sorted(whole.rglob("*.png")):
        assert path.read_bytes() == (cut / path.relative_to(whole)).read_bytes()
    assert export_files.read_index(cut) == export_files.read_index(whole)
    made.clear()
    run(cut)
    assert not made


def test_what_is_skipped_is_counted(tmp_path):
    columns = squares()
    columns["label"][3], columns["mask"][4] = -1, 255
    scores = run(tmp_path, columns=columns)
    assert (scores["train"]["images"], scores["train"]["skipped"], scores["train"]["scored"]) == (11, 1, 10)
    assert (
        export_files.describe_entries(export_files.read_index(tmp_path))
        == "11 of 12 images done; 1 skipped: no class is present"
    )
    columns["label"][:] = -1
    scores = run(tmp_path / "none", columns=columns)
    assert scores["train"] == {"images": 0, "skipped": 12, "scored": 0}


def test_several_classes_per_image_and_predictions(tmp_path):
    columns = squares()
    several = torch.nn.functional.one_hot(columns["label"], 2)
    several[0], several[1] = 1, 0
    del columns["mask"]
    config = PseudoMaskConfig("generic_attention", scales=(1,), threshold=0.4, refine=None)
    run(tmp_path / "several", config=config, columns={**columns, "label": several})
    first, second = export_files.read_index(tmp_path / "several")[:2]
    assert (first.classes, second.status) == ((0, 1), "skipped")
    model = fitted()
    options: dict[str, Any] = {"threshold": 0.4, "present": "predicted", "scales": (1,)}
    del columns["label"]
    for name, multi in (("one", False), ("many", True)):
        run(tmp_path / name, model, PseudoMaskConfig(multi_label=multi, **options), columns)
        shown = [entry.classes for entry in export_files.read_index(tmp_path / name)]
        logits = model(columns["image"])
        expected = [tuple((row > 0).nonzero().flatten().tolist()) if multi else (int(row.argmax()),) for row in logits]
        assert shown == expected


def test_two_splits_share_a_folder(tmp_path):
    run(tmp_path)
    scores = run(tmp_path, columns=squares(8, seed=2), split="val")
    assert scores.keys() == {"train", "val"}
    assert len((tmp_path / "truth" / export_files.LISTS / "val.txt").read_text().split()) == 8


def test_a_batch_is_its_images(tmp_path):
    generator = SeedGenerator(classifier().double(), PseudoMaskConfig("attnlrp"), 2)
    columns = squares(4)
    columns["image"] = columns["image"].double()
    whole = generator.generate(read_images(columns))
    for row in range(4):
        alone = generator.generate(read_images({name: value[row : row + 1] for name, value in columns.items()}))
        torch.testing.assert_close(whole.refined[row, columns["label"][row]], alone.refined[0, 0], rtol=1e-5, atol=1e-7)
        assert torch.equal(label_map(alone.refined, 0, alone.classes) > 0, alone.refined[:, 0] > 0)


@pytest.mark.parametrize("validation", [True, False])
def test_without_true_masks_the_threshold_is_the_default_and_said(validation, tmp_path):
    columns = squares(4)
    del columns["mask"]
    images = source(columns)
    names = lambda n: ["a", "b"]  # noqa: E731
    with pytest.warns(UserWarning, match=f"no validation image has a true mask.*it is {DEFAULT_THRESHOLD}; look at"):
        run_export(classifier(), QUICK, images, tmp_path / "a", "train", names, images if validation else None)
    named = replace(QUICK, threshold=DEFAULT_THRESHOLD)
    run_export(classifier(), named, images, tmp_path / "b", "train", names)
    for folder in (export_files.SEEDS, export_files.MASKS):
        for path in sorted((tmp_path / "a" / folder).iterdir()):
            assert path.read_bytes() == (tmp_path / "b" / folder / path.name).read_bytes()


def test_progress_is_shown_on_request(tmp_path, capsys):
    given = source(squares(4))
    run_export(classifier(), QUICK, given, tmp_path, "train", lambda n: ["a", "b"], given, progress=True)
    shown = capsys.readouterr().err
    assert "Threshold, on the validation images: 1 batches" in shown
    assert "Masks of the train images: 1 batches" in shown


def test_errors(tmp_path):
    run(tmp_path / "c")
    with pytest.raises(ValueError, match="other settings: method 'generic_attention', not 'rollout'"):
        run(tmp_path / "c", config=PseudoMaskConfig("rollout", scales=(1,), flip=False))
    with pytest.raises(ValueError, match="other settings: weights"):
        run(tmp_path / "c", fitted(1))
    with pytest.raises(ValueError, match="no image to export"):
        run_export(classifier(), QUICK, lambda: iter(()), tmp_path / "d", "train", lambda n: [])
    with pytest.raises(ValueError, match="room for 254 classes"):
        run(tmp_path / "e", classifier(num_classes=300))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "nothing"}, "unknown method"),
        ({"refine": "nothing"}, r"refine must be one of \('pixel_adaptive'"),
        ({"threshold": 1.0}, "threshold"),
        ({"margin": -0.1}, "margin"),
        ({"present": "both"}, "present must be"),
        ({"mean": (0, 0, 0)}, "both mean and std"),
    ],
)
def test_a_wrong_config_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PseudoMaskConfig(**options)
