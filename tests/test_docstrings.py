"""Every public class and function is in an example, and the examples print what they show."""

import doctest
import inspect
import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import lrptrain.guidance.losses
import lrptrain.loggers.sink
import lrptrain.monitor.summary

PAGES = sorted((Path(__file__).resolve().parents[1] / "docs" / "reference" / "api").glob("*.md"))
MODULES = ["lrptrain.loggers", "lrptrain.repairing"]
"""Modules with public names beside those of the pages."""
WITHOUT = {
    **dict.fromkeys(("Recording", "Relevance", "Explanation", "Decomposition"), "what a function returns or gets"),
    **dict.fromkeys(("AuditResult", "Verdict", "Inspection", "Repair", "HasFindings"), "what a function returns"),
    **dict.fromkeys(("RelevanceWarning", "NonFiniteError"), "raised, and not called"),
    **dict.fromkeys((f"Unsupported{kind}Error" for kind in ("Model", "Method", "Operation")), "raised, and not called"),
    **dict.fromkeys(
        ("Picture", "Highlight", "Input", "ClassMap", "TitledPair", "Word"), "made by a monitor or a renderer"
    ),
    **dict.fromkeys(
        ("LoggedMetric", "RecordWriter", "send"), "what loggers use: lrptrain.register_metric is for users"
    ),
    **dict.fromkeys(("AnnotationMetric", "SampleMean", "Target"), "a base class: its subclasses have examples"),
    "register_loss": "its function needs a whole training step: register_map_loss has an example",
    "check_role": "what cues ask: Cue.declared raises the same",
    "CocoTransforms": "needs torchvision's CocoDetection",
    "EraserDocuments": "needs a data set of ERASER",
    **dict.fromkeys(("VOCFolder", "COCOFolder"), "needs a data set of theirs"),
    "MLflowRun": "needs a run of MLflow",
    "TokenLayout": "needs a model whose tokens cannot be found",
}
"""What has no example, and why."""


def in_reference() -> Iterator[tuple[str, Any]]:
    """What the pages of the reference show, by its full name, and the public names of their modules."""
    modules = list(MODULES)
    for name in (name for page in PAGES for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.M)):
        value = resolve_name(name)
        if inspect.ismodule(value):
            modules.append(name)
        else:
            yield name, value
    for name in ["lrptrain", *modules]:
        module = import_module(name)
        yield name, module
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name and key[0] != "_"]
        yield from ((f"{name}.{each}", getattr(module, each)) for each in getattr(module, "__all__", own))


PUBLIC = {name: value for name, value in in_reference() if inspect.ismodule(value) or callable(value)}
BY_TEXT = {value.__doc__: name for name, value in PUBLIC.items() if ">>>" in (value.__doc__ or "")}
EXAMPLES = {name: text for text, name in BY_TEXT.items()}


REGISTRIES: list[Any] = [
    lrptrain.guidance.losses.base.LOSSES,
    lrptrain.guidance.losses.on_maps.MAP_LOSSES,
    lrptrain.loggers.sink._SINKS,
    lrptrain.monitor.summary.METRICS,
]


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What an example registers does not stay."""
    before = [registry.copy() for registry in REGISTRIES]
    yield
    for registry, entries in zip(REGISTRIES, before, strict=True):
        registry.clear()
        (registry.extend if isinstance(registry, list) else registry.update)(entries)


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (found,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs={})
    runner = doctest.DocTestRunner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning, about so small a run
        runner.run(found)
    assert runner.summarize(verbose=False).failed == 0


def test_every_public_class_and_function_is_in_an_example():
    code = [example.source for text in EXAMPLES.values() for example in doctest.DocTestParser().get_examples(text)]
    shown = set(re.findall(r"\w+", "".join(code)))
    names = {name.rpartition(".")[2]: value for name, value in PUBLIC.items() if not inspect.ismodule(value)}
    callables = {name for name, value in names.items() if inspect.isclass(value) or inspect.isfunction(value)}
    assert callables - shown - {*WITHOUT} == set()
    assert {*WITHOUT} - callables | {*WITHOUT} & {name.rpartition(".")[2] for name in EXAMPLES} == set()
