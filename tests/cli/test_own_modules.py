"""Every verb on a user's own LightningModule and data."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_vision
import pytest
import torch
from PIL import Image

import lrptrain
from lrptrain.auditing import AuditSettings
from lrptrain.cli import main

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]
MODULE, DATA = "--module=own_vision.Vision", "--data=own_vision.Data"
MODULE_WITH_ARGUMENT = "--module=own_vision.Headless(width=8)"
NORMALISED = (f"--mean={list(own_vision.MEAN)}", f"--std={list(own_vision.STD)}")
QUICK = ("--max-samples=6", "--methods=random,rollout", "--device=cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints and a picture of class 1, as the training set has them before its normalisation."""
    root = tmp_path_factory.mktemp("own")
    torch.manual_seed(0)
    own_vision.checkpoint(own_vision.Vision(), root / "vision.ckpt", own_vision.Data(), max_epochs=8)
    own_vision.checkpoint(own_vision.Headless(width=8), root / "headless.ckpt")
    own_vision.checkpoint(own_vision.Saved(width=8), root / "saved.ckpt")
    own_vision.checkpoint(own_vision.Saved(extra=Path("somewhere")), root / "objects.ckpt")
    image = own_vision.pixels(2, 5)[0][1]
    Image.fromarray((image.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)).save(root / "green.png")
    return root


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a verb writes by default goes here."""
    monkeypatch.chdir(tmp_path)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """Return the one line with which a verb ends."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err.strip()
    assert said.startswith("lrptrain: ")
    assert "\n" not in said
    return said


def compared(*arguments: Any) -> dict[str, Any]:
    main(["compare", *map(str, arguments), *QUICK])
    return json.loads(Path("comparison/results.json").read_text(encoding="utf-8"))


def scores(results: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a comparison that do not depend on the clock."""
    return {row["method"]: row["scores"] for row in results["methods"]}


def test_compare_takes_a_module_and_data_in_every_form(folder, tmp_path):
    checkpoint = folder / "vision.ckpt"
    results = compared(checkpoint, MODULE, DATA)
    assert results["data"] == "Data"
    assert results["samples"] == 6
    assert results["accuracy"] == 1.0  # it is this checkpoint's model, on data that are normalised as in its training
    (tmp_path / "config.yaml").write_text(
        "model: {class_path: own_vision.Vision, init_args: {width: 16}}\n"
        "data: {class_path: own_vision.Data, init_args: {batch_size: 5}}\n",
        encoding="utf-8",
    )
    config = tmp_path / "config.yaml"
    for options in (
        ("--module=own_vision.Vision(width=16)", "--data=own_vision.Data(batch_size=5)"),
        (f"--module={config}", f"--data={config}"),
        (MODULE, "--data=own_vision.loader"),
        (MODULE, DATA, "--model=backbone"),
    ):
        assert scores(compared(checkpoint, *options)) == scores(results)
    adapted = compared(checkpoint, MODULE, "--data=own_vision.renamed(size=4)", "--batch-adapter=own_vision.adapter")
    assert scores(adapted)["rollout"]["positive AUC"] == scores(results)["rollout"]["positive AUC"]
    assert "EPG" not in scores(adapted)["rollout"]  # the adapter leaves the masks out


def test_the_function_gives_the_results_of_the_command(folder, tmp_path):
    results = compared(folder / "vision.ckpt", MODULE, DATA)
    module = own_vision.Vision.load_from_checkpoint(folder / "vision.ckpt", weights_only=True).train()
    module.backbone.patch_embed.requires_grad_(False)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    random_state = torch.get_rng_state()
    comparison = lrptrain.compare(
        module, own_vision.loader(), ["random", "rollout"], max_samples=6, output=tmp_path / "function"
    )
    assert scores(json.loads((tmp_path / "function" / "results.json").read_text(encoding="utf-8"))) == scores(results)
    assert {row.method: row.scores for row in comparison.rows}.keys() == {"random", "rollout"}
    assert str(comparison) == (tmp_path / "function" / "table.md").read_text(encoding="utf-8").strip()
    # The model is left as it was: in training mode, with its frozen layer and its weights.
    assert module.training
    assert module.backbone.training
    assert [name for name, each in module.named_parameters() if not each.requires_grad] == [
        name for name, _ in module.named_parameters() if "patch_embed" in name
    ]
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_plain_module_is_taken_as_it_stands():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 3))
    comparison = lrptrain.compare(net, own_vision.loader(), ["input_x_gradient"], max_samples=4, faithfulness=False)
    assert not comparison.rows[0].problem
    headless = own_vision.Headless(8)
    with pytest.raises(ValueError, match=r"could be any of .*: pass the model itself, such as module\.backbone"):
        lrptrain.compare(headless, own_vision.loader(), ["random"])
    with pytest.raises(ValueError, match="no sample"):
        lrptrain.compare(net, [], ["random"])


SHORT = {"random_maps": 1, "stages": 1}


def test_audit_as_a_command_and_as_a_function(folder, tmp_path):
    settings = [f"--settings.{name}={value}" for name, value in SHORT.items()]
    chosen = "--tests=perturbation,randomisation"
    options = [MODULE_WITH_ARGUMENT, "--model=backbone", DATA, "--max-samples=8", "--methods=random", "--device=cpu"]
    main(["audit", str(folder / "headless.ckpt"), *options, *settings, chosen])
    written = json.loads(Path("audit/results.json").read_text(encoding="utf-8"))
    module = own_vision.Headless.load_from_checkpoint(folder / "headless.ckpt", width=8, weights_only=True)
    data = own_vision.Data()
    data.setup("fit")
    result = lrptrain.audit(
        module.backbone,
        data.val_dataloader(),
        ["random"],
        tests=["perturbation", "randomisation"],
        max_samples=8,
        settings=AuditSettings(**SHORT),
        output=tmp_path / "function",
    )
    again = json.loads((tmp_path / "function" / "results.json").read_text(encoding="utf-8"))
    values = [{(unit["test"], unit["of"]): unit["values"] for unit in each["units"]} for each in (written, again)]
    assert values[0] == values[1]
    assert values[0]["perturbation", "random"]
    assert str(result) == (tmp_path / "function" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("saved.ckpt", "--module=nowhere.Model", DATA), "'nowhere.Model' is not the dotted path of a LightningModule"),
        (("saved.ckpt", "--module=own_vision.Wrong", DATA), "has no attribute 'Wrong'"),
        (("saved.ckpt", "--module=Vision", DATA), "write it as package.Vision"),
        (("saved.ckpt", "--module=own_vision.pixels", DATA), "is no LightningModule"),
        (("saved.ckpt", "--module=own_vision.Saved(16)", DATA), "arguments are given by name"),
        (("saved.ckpt", "--module=own_vision.Saved(widht=16)", DATA), "takes no argument widht; it has width, extra"),
        (
            ("vision.ckpt", "--module=own_vision.Vision(width=8)", DATA),
            "write --module 'own_vision.Vision(argument=value)'",
        ),
        (("vision.ckpt", "--module=own_vision.Failing", DATA), "KeyError: 'no licence'"),
        (("headless.ckpt", "--module=own_vision.Headless", DATA), "write --module 'own_vision.Headless(width=...)'"),
        (("headless.ckpt", "--module=own_vision.Headless(width=8)", DATA), "say which with --model <attribute>"),
        (("vision.ckpt", DATA), "does not say of which LightningModule it is: pass --module package.Class"),
        (("vision.ckpt", MODULE), "pass --data package.DataModule, or a config"),
        (("vision.ckpt", MODULE, "--data=own_vision.Dater"), "has no attribute 'Dater'"),
        (("vision.ckpt", MODULE, "--data=own_vision.renamed"), "write --data 'own_vision.renamed(size=...)'"),
        (("vision.ckpt", MODULE, "--data=own_vision.MEAN[0"), "is no package.Class"),
        (("vision.ckpt", MODULE, DATA, "--split=test"), "Data gives no test set"),
        (("vision.ckpt", MODULE, "--data=own_vision.loader", "--split=test"), "which has no test set"),
        (("objects.ckpt", "--module=own_vision.Saved", DATA), "pathlib.PosixPath"),
        # What the functions behind say of their arguments is said of the options.
        (("vision.ckpt", MODULE, DATA, "--model=net.x"), "--model net.x: Vision has no such attribute"),
        (("vision.ckpt", MODULE, "--data=own_vision.renamed(size=4)"), "pass --batch-adapter package.function to"),
    ],
)
def test_what_is_wrong_is_one_line(folder, options, says, capsys):
    checkpoint, *others = options
    assert says in refusal(capsys, "compare", folder / checkpoint, *others, *QUICK)


@pytest.mark.parametrize("text", ["data: !!python/object/apply:os.system [true]", "{data: 1"])
def test_a_config_that_is_no_yaml_is_one_line(text, folder, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(text, encoding="utf-8")
    given = ("compare", folder / "vision.ckpt", MODULE)
    assert f"{config} is no YAML: " in refusal(capsys, *given, f"--data={config}")
    refusal(capsys, *given, f"--config={config}")


@pytest.mark.parametrize("size", [0, 3000])
def test_a_checkpoint_that_is_cut_short_is_named(size, folder, tmp_path, capsys):
    cut = tmp_path / "cut.ckpt"
    cut.write_bytes((folder / "vision.ckpt").read_bytes()[:size])
    assert re.search(r"cut.ckpt' cannot be read as a checkpoint: \S", refusal(capsys, "compare", cut, MODULE, DATA))


def test_a_checkpoint_with_objects_needs_trust(folder, capsys):
    options = (folder / "objects.ckpt", "--module=own_vision.Saved", DATA)
    for verb in ("compare", "audit", "segment"):
        assert "pass --trust true" in refusal(capsys, verb, *options)
    assert "pass --trust true" in refusal(capsys, "attribute", *options[:2], folder / "green.png")
    assert compared(*options, "--trust=true")["samples"] == 6


@pytest.mark.parametrize("verb", ["compare", "audit"])
def test_a_part_that_does_not_run_is_one_line(verb, folder, capsys):
    options = [verb, str(folder / "vision.ckpt"), MODULE, DATA, "--model=backbone.blocks", "--methods=random"]
    assert "--model backbone.blocks does not run on the samples of the data: " in refusal(capsys, *options)


def test_attribute_knows_the_normalisation_or_asks(folder, tmp_path, capsys):
    picture = folder / "green.png"
    options = ["attribute", str(folder / "vision.ckpt"), str(picture), MODULE]
    # The card of the timm model inside, which the data contradict.
    assert "are not normalised as timm's card" in refusal(capsys, *options, DATA)
    main([*options, *NORMALISED, DATA, "--target=blue"])
    said = capsys.readouterr().out
    assert "mean 0.2, 0.3, 0.4 and std 0.1, 0.2, 0.3: --mean and --std" in said
    assert "predicted class 1 'green' (" in said
    assert "explained class 2 'blue' (" in said
    main(options)
    assert "timm's card of vit_tiny_patch16_224 (if training did otherwise, pass --data" in capsys.readouterr().out
    main([*options, "--data=own_vision.plain", "--class-names=red,green,blue"])
    assert "images from 0 to 1, not normalised: so are the images of the data" in capsys.readouterr().out
    assert "there is no class 'pink'; there are red, green, blue" in refusal(
        capsys, *options, *NORMALISED, DATA, "--target=pink"
    )
    assert "--class-names has 2 names for 3 logits" in refusal(capsys, *options, "--class-names=red,green")


def test_segment_takes_them_too(folder, capsys):
    main(["segment", str(folder / "vision.ckpt"), MODULE, "--data=own_vision.Split", "--training.max_epochs=1",
          "--masks.method=rollout"])  # fmt: skip
    said = capsys.readouterr().out
    assert "where none has a mask, it is 0.3 (--masks.threshold sets it)" in said
    assert "nothing says for sure how the images were normalised (--masks.mean and --masks.std would)" in said
    assert "segmentation/results.json" in said
    assert "name a LightningDataModule in --data" in refusal(
        capsys, "segment", folder / "vision.ckpt", MODULE, "--data=own_vision.loader"
    )


def test_segment_reads_every_form_of_masks_and_needs_no_test_set(folder, capsys):
    results = {}
    for masks in ("plain", "regions"):
        output = masks.replace(" ", "_")
        main(["segment", str(folder / "vision.ckpt"), MODULE, f"--data=own_vision.other_package(masks='{masks}')",
              "--training.max_epochs=1", "--masks.method=rollout", f"--output={output}"])  # fmt: skip
        scores = json.loads(Path(output, "results.json").read_text(encoding="utf-8"))
        assert scores.keys() == {"train", "val", "segmenter"}
        assert scores["val"]["scored"] == 24
        results[masks] = {split: scores[split]["masks"]["mean_iou"] for split in ("train", "val")}
    assert results["regions"] == results["plain"]
    says = refusal(capsys, "segment", folder / "vision.ckpt", MODULE, "--masks.masks=classes", "--masks.method=rollout",
                   "--data=own_vision.other_package(masks='regions')", "--output=classes")  # fmt: skip
    assert "mask [8, 2, 16, 16] must be [batch, height, width] of the classes" in says


def test_the_working_directory_is_on_the_path(folder, tmp_path, monkeypatch, capsys):
    """Of the installed command, too, which has its own folder there, unlike `python -m lrptrain`."""
    (tmp_path / "stranger").mkdir()
    shutil.copy(own_vision.__file__, tmp_path / "stranger" / "vision.py")
    (tmp_path / "stranger" / "broken.py").write_text("raise RuntimeError('no licence')\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    options = ["attribute", folder / "vision.ckpt", folder / "green.png", *NORMALISED]
    main([*map(str, options), "--module=stranger.vision.Vision"])
    assert "predicted class 1 (" in capsys.readouterr().out
    said = refusal(capsys, *options, "--module=stranger.broken.Vision")
    assert "cannot be imported: RuntimeError: no licence" in said
    assert "broken.py:1)" in said
