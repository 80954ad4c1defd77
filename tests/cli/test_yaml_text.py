"""Configs that unpack to more than any config are refused, wherever they are read."""

import hostile
import pytest

from lrptrain.cli import main, yaml_text
from lrptrain.cli.yaml_text import load_yaml

NINE = "[" + ", ".join(["*{}"] * 9) + "]"
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} {NINE.replace('{}', f'a{i - 1}')}\n" for i in range(1, 10))
TEXTS = {
    "nested in brackets": ("[" * 5000 + "]" * 5000, "nested more than 100 deep"),
    "nested in dashes": ("- " * 5000 + "x", "nested more than 100 deep"),
    "nested in lines": ("".join(" " * depth + "a:\n" for depth in range(400)), "nested more than 100 deep"),
    "a billion laughs": (LAUGHS, "more than 100000 values"),
    "itself within": ("data: &a {class_path: *a}", "the alias 'a' of a value that it is part of"),
    "an alias of nothing": ("data: *a", "the alias 'a'"),
    "a long text": ("data: " + "x" * 2**21, "2097158 characters"),
    "an object": ("data: !!python/object/apply:os.system [true]", "could not determine a constructor"),
    "half a mapping": ("{data: 1", "expected ',' or '}'"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_too_much_is_refused(name):
    text, says = TEXTS[name]
    with pytest.raises(ValueError, match="no YAML: ") as refused:
        load_yaml(text)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ('{"a": [true, null]}', {"a": [True, None]}),
        ("", None),
        ("x: &m {a: 1}\ny: {<<: *m, b: 2}", {"x": {"a": 1}, "y": {"a": 1, "b": 2}}),
        ("[" * 90 + "]" * 90, None),
        ("&a 1", 1),
    ],
)
def test_any_other_is_read(text, value):
    assert value is None or load_yaml(text) == value
    load_yaml(text)


def test_values_count_with_those_that_aliases_repeat(monkeypatch):
    monkeypatch.setattr(yaml_text, "MOST_NODES", 13)
    # 1 mapping, 3 keys, the list with its 2 entries, and twice the same: 4 + 3 + 3 + 3.
    assert load_yaml("a: &x [1, 2]\nb: *x\nc: *x")
    with pytest.raises(ValueError, match="more than 13 values"):
        load_yaml("a: &x [1, 2]\nb: *x\nc: [*x]")


TOO_MUCH = [name for name in TEXTS if name not in ("an object", "half a mapping")]
READERS = [
    ("compare", "a.ckpt", "--data=config.yaml"),
    ("attribute", "a.ckpt", "a text", "--module=config.yaml"),
    ("repair", "a.ckpt", "--data=config.yaml"),
    ("segment", "a.ckpt", "--config=config.yaml"),
    ("segment", "a.ckpt", "--masks=config.yaml"),
    ("audit", "a.ckpt", "--settings=config.yaml"),
    ("check", "--config=config.yaml"),
    ("report", "--config=config.yaml"),
    ("dashboard", "--config=config.yaml"),
    ("demo", "--config=config.yaml"),
    ("wandb-workspace", "--config=config.yaml"),
    ("fit", "--config=config.yaml"),
    ("validate", "--config", "config.yaml"),
    ("test", "-c", "config.yaml"),
]


@pytest.mark.parametrize(
    ("options", "name"),
    [(options, TOO_MUCH[number % len(TOO_MUCH)]) for number, options in enumerate(READERS)],
    ids=[f"{options[0]} {options[-1].split('=')[0]}" for options in READERS],
)
def test_each_verb_says_so_in_one_line(options, name, tmp_path, monkeypatch, capsys):
    import torch

    monkeypatch.chdir(tmp_path)
    torch.save(hostile.image_checkpoint(), "a.ckpt")
    (tmp_path / "config.yaml").write_text(TEXTS[name][0], encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(list(options))
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err.strip()
    assert said.startswith("lrptrain: ")
    assert said.count("\n") == 0
    assert len(said) < 600
