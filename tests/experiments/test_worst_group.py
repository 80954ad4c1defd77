"""Published data in files of the same form: groups are read as published, and every arm runs."""

import csv
import json
import sys

import numpy as np
import pytest
from PIL import Image

from experiments.worst_group import readers, run
from experiments.worst_group.readers import IDENTITIES, READERS
from lrptrain.models import ImageClassifier, TextClassifier
from tests.word_pieces import saved_words

WORDS = ("it", "rains", "never", "nobody", "slept", "people", "they", "say", "not", "nothing")


def write_celeba(root):
    """Faces whose brightness tells blond hair, most often of women."""
    rng = np.random.default_rng(0)
    (root / "img_align_celeba").mkdir()
    attributes, parts = ["96", "Bald Blond_Hair Male Young"], []
    for number in range(96):
        blond, male = number % 2, number % 3 == 0
        name = f"{number:06d}.jpg"
        pixels = rng.integers(0, 80, (20, 16, 3)) + 150 * blond
        Image.fromarray(pixels.astype(np.uint8)).save(root / "img_align_celeba" / name)
        attributes.append(f"{name} -1 {2 * blond - 1:2d} {2 * male - 1:2d}  1")
        parts.append(f"{name} {number // 32}")
    (root / "list_attr_celeba.txt").write_text("\n".join(attributes) + "\n", encoding="utf-8")
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n", encoding="utf-8")


def write_multinli(root):
    """Pairs of which those with a negation contradict."""
    for name, count in (("train", 400), ("dev_matched", 24)):
        with (root / f"multinli_1.0_{name}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(count):
                label = (*readers.NLI, "-")[number % 4]
                second = "It never rains, they say" if number % 4 == 0 else "they say it rains"
                pair = {"gold_label": label, "sentence1": "people slept", "sentence2": second}
                file.write(json.dumps(pair) + "\n")


def write_civilcomments(root):
    """Comments that mention none, one or several identities."""
    with (root / "all_data_with_identities.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("comment_text", "split", "toxicity", *IDENTITIES))
        writer.writeheader()
        for number in range(72):
            row = {"comment_text": f"people {'slept' if number % 2 else 'never slept'}, they say"}
            row |= {"split": ("train", "val", "test")[number % 3], "toxicity": f"{0.6 * (number % 2):.1f}"}
            said = {"black": 0.9 if number % 4 < 2 else 0.1, "female": 0.5 if number % 5 == 0 else ""}
            writer.writerow({**row, **dict.fromkeys(IDENTITIES, 0.0), **said})


WRITERS = {"celeba": write_celeba, "multinli": write_multinli, "civilcomments": write_civilcomments}


def test_groups_are_those_of_the_papers(tmp_path):
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    faces, pairs, comments = (READERS[name](tmp_path / name, None) for name in WRITERS)
    assert [each["group"] for each in faces.splits["train"][:4]] == [1, 2, 0, 3]  # dark man, blond woman, ...
    assert {name: len(split) for name, split in faces.splits.items()} == {"train": 32, "val": 32, "test": 32}
    assert [each["group"] for each in pairs.splits["test"][:3]] == [1, 2, 4]  # contradicts, and has "never"
    assert [len(pairs.splits[name]) for name in ("train", "val", "test")] == [270, 30, 18]  # without "-"
    first, second = comments.splits["train"][:2]
    assert (first["label"], first["group"], first["groups"]) == (0, 1, [2, 12])  # female and black
    assert (second["label"], second["group"], second["groups"]) == (1, 2, [])
    assert len(READERS["celeba"](tmp_path / "celeba", 3).splits["train"]) == 3


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings("ignore")
def test_every_arm_runs_and_is_counted_by_group(name, tmp_path, monkeypatch, capsys):
    WRITERS[name](tmp_path)
    monkeypatch.setattr(readers, "SIZE", 16)
    vocabulary = saved_words(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS], tmp_path / "words")

    def network(data, model):
        assert model == ("vit_small_patch16_224" if data.images else "bert-base-uncased")
        if data.images:
            sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
            return ImageClassifier(2, "vit_tiny_patch16_224", model_kwargs=sizes)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        return TextClassifier(len(data.classes), {"model_type": "bert", "vocab_size": 20, **sizes})

    monkeypatch.setattr(run, "network", network)
    folder = ["--root", str(tmp_path), "--results", str(tmp_path / "results"), "--tokenizer", vocabulary]
    monkeypatch.setattr(sys, "argv", ["run", name, *folder, "--epochs", "1", "--batch", "8"])
    run.main()
    rows = [json.loads(line) for line in (tmp_path / "results" / f"{name}.jsonl").read_text("utf-8").splitlines()]
    assert [row["arm"] for row in rows] == [*run.ARMS]
    for row in rows:
        assert all(0 <= right <= count for count, right in row["groups"].values())
        if name != "civilcomments":  # where a comment is in no group, or in several
            counts = np.array(list(row["groups"].values()))
            assert counts[:, 1].sum() / counts[:, 0].sum() == pytest.approx(row["accuracy"])
    assert f"| {run.PLAIN} |" in capsys.readouterr().out
    run.main()  # nothing is missing
    assert len((tmp_path / "results" / f"{name}.jsonl").read_text("utf-8").splitlines()) == len(rows)
