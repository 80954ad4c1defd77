import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lrptrain.cli import main
from lrptrain.cli.main import GONE, LIGHTNING_VERBS, POSITIONAL, RENAMED, VERBS, _named
from lrptrain.terminal import WIDTH

ROOT = Path(__file__).parents[2]
VERB_NAMES = {*LIGHTNING_VERBS, *VERBS}


@pytest.mark.parametrize("typed", [[], ["--help"], ["-h"]])
def test_without_a_verb_all_are_listed(typed: list[str]):
    done = subprocess.run([sys.executable, "-m", "lrptrain", *typed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {verb for verb, _ in lines} == VERB_NAMES
    assert all(len(line) > 20 and line.endswith(".") for _, line in lines)
    assert max(map(len, done.stdout.splitlines())) <= WIDTH


def one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on the standard error of a call that ends with 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.startswith("lrptrain: ")
    assert err.count("\n") == 1
    return err.strip()


def test_an_unknown_verb_is_one_line(capsys):
    assert one_line(["fitt"], capsys) == (
        "lrptrain: there is no verb 'fitt'; did you mean fit?; `lrptrain --help` lists all"
    )
    assert "did you mean" not in one_line(["--verbose"], capsys)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["audit", "x:y", "--metods=a"], "--metods=a"),
        (["audit", "x:y", "--max-samples=many"], "max_samples: Expected a <class 'int'>"),
        (["audit", "x:y", "z:a"], "z:a"),
        (["demo", "runs", "more"], "unrecognized arguments: more ("),
        (["dashboard"], "run"),
        (["fit", "--confg", "x.yaml"], "--confg"),
    ],
)
@pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning")
def test_a_wrong_option_is_one_line(typed: list[str], says: str, capsys):
    line = one_line(typed, capsys)
    assert says in line
    assert line.endswith(f"(see `lrptrain {typed[0]} --help`)")


@pytest.mark.parametrize("verb", GONE)
def test_a_verb_that_is_gone_names_the_function_and_its_page(verb: str, capsys):
    line = one_line([verb, "model.ckpt", "--max-samples=3"], capsys)
    name, page = re.fullmatch(rf"lrptrain: `lrptrain {verb}` is (lrptrain[. ]\w+)\b.*: (\S+)", line).groups()  # type: ignore[union-attr]
    assert name in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("verb", "old", "new"), [(verb, *pair) for verb, names in RENAMED.items() for pair in names.items()]
)
def test_an_old_option_names_the_new_one(verb: str, old: str, new: str, capsys, tmp_path: Path):
    for typed in ([f"--{old}=1"], [f"--{old}", "1"], [f"--{old}.part=1"]):
        assert one_line([verb, *typed], capsys) == f"lrptrain: --{old} of `lrptrain {verb}` is now --{new}"
    if "source" not in POSITIONAL.get(verb, ()):  # else a config is one of LightningCLI
        (tmp_path / "config.yaml").write_text(f"{old}: 1\n", encoding="utf-8")
        assert f"{old} is now {new}" in one_line([verb, f"--config={tmp_path / 'config.yaml'}"], capsys)


def test_arguments_have_the_same_name_in_all_verbs():
    """What a name means is the same wherever it stands, and nothing has two names."""
    meanings: dict[str, set[str]] = {}
    for path in (*(path for path, _ in VERBS.values()), "lrptrain.cli.source.read_source"):
        module, _, name = path.rpartition(".")
        function = getattr(importlib.import_module(module), name)
        documented = re.findall(r"^        \**(\w+): (.+)$", function.__doc__ or "", re.MULTILINE)
        parameters = list(inspect.signature(function).parameters)
        assert [each for each, _ in documented if each in parameters] == parameters, path
        for each, text in documented:
            meanings.setdefault(each, set()).add(text)
    assert not meanings.keys() & {"folder", "limit", "samples", "out", "checkpoint_path"}


@pytest.mark.parametrize("typed", [["--open"], ["--open", "--port=9"], ["--open=true"], ["--open", "true"]])
def test_a_flag_needs_no_value(typed: list[str]):
    with pytest.raises(SystemExit, match="'nowhere' is no folder"):
        main(["dashboard", "nowhere", *typed])


def test_a_wrong_argument_has_no_traceback(tmp_path: Path):
    # The verb that imports least.
    command = [sys.executable, "-m", "lrptrain", "check", "no_run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr.strip().splitlines()[-1].startswith("lrptrain: no monitored run with an evaluation in")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("my:f cat.png", "--source=my:f --sample=cat.png"),
        ("my:f --target 3 cat.png", "--source=my:f --target 3 --sample=cat.png"),
        ("--target=3 my:f cat.png", "--target=3 --source=my:f --sample=cat.png"),
        ("--config a.yaml cat.png --ckpt_path b", "--config a.yaml --sample=cat.png --ckpt_path b"),
        ("--config=a.yaml cat.png", "--config=a.yaml --sample=cat.png"),
        ("my:f cat.png dog.png", "--source=my:f --sample=cat.png dog.png"),
        ("-h my:f", "-h --source=my:f"),
    ],
)
def test_words_without_a_name_are_options_wherever_they_stand(typed: str, named: str):
    assert _named(typed.split(), ("source", "sample")) == named.split()
