"""Every number of the published reference implementation is met, batched."""

from functools import cache
from pathlib import Path

import pytest
from golden_cases import CALLS, DIVIDING, Case, computed, load, relative_error

import lrptrain

COMMITTED = Path(__file__).parent / "golden"
# The two smallest files are here; the others run where their folder is.
FILES = ("bert_a", "bert_b", "vit_a", "vit_b", "vit_c")
TEXT = [
    "logits",
    "attention",
    "attention_grad",
    "attention_relevance",
    "embedding_relevance",
    "rollout",
    "transformer_attribution_rownorm_start0",
    "transformer_attribution_rownorm_startlast",
]
IMAGE = [
    "logits",
    "attention",
    "attention_grad",
    "attention_relevance",
    "transformer_attribution_start0",
    "transformer_attribution_start1",
    "full_relevance_pixels",
    "lrp_baseline_pixels",
    "partial_lrp",
    "raw_attention",
    "rollout",
    "attention_gradcam",
    "generic_attention",
]
NUMBERS = [(file, name) for file in FILES for name in (TEXT if file.startswith("bert") else IMAGE)]
EXACT = ("logits", "attention", "attention_grad")

cached = cache(load)


def case_of(file: str, request: pytest.FixtureRequest) -> Case:
    path = COMMITTED / f"{file}.npz"
    return cached(path if path.exists() else request.getfixturevalue("shared") / "golden" / path.name)


def test_two_files_are_always_here():
    assert sorted(path.stem for path in COMMITTED.glob("*.npz")) == ["bert_a", "vit_a"]


@pytest.mark.parametrize("file", FILES)
def test_every_number_of_the_file_is_compared(request, file):
    assert set(case_of(file, request).expected) == {name for other, name in NUMBERS if other == file}


@pytest.mark.parametrize(("file", "name"), NUMBERS)
def test_numbers_of_the_reference(request, file, name):
    case = case_of(file, request)
    error = relative_error(computed(case, name), case.expected[name]).max().item()
    assert error < (1e-12 if name in EXACT else 1e-4)


@pytest.mark.parametrize(("file", "name"), NUMBERS)
def test_a_batch_equals_its_samples(request, file, name):
    case = case_of(file, request)
    whole = computed(case, name)
    _, *others = range(len(case.target))
    # One by itself, or the others the other way round.
    rows = [0] if NUMBERS.index((file, name)) % 2 else others[::-1]
    assert relative_error(computed(case.rows(rows), name), whole[rows]).max() < 1e-9


@pytest.mark.parametrize(("file", "name"), [(f, n) for f, n in NUMBERS if n in CALLS and CALLS[n][1] in DIVIDING])
def test_with_the_published_stabiliser_the_numbers_agree_to_the_digit(request, file, name):
    case = case_of(file, request)
    error = relative_error(computed(case, name, stabiliser=1e-9), case.expected[name]).max().item()
    # Texts: the published code divides once more where queries, keys and values read the same tokens.
    assert error < (1e-6 if file.startswith("bert") else 1e-11)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("transformer_attribution", {"stabiliser": -1.0}, "stabiliser must not be negative"),
        ("lrp", {"stabiliser": 1e-9}, "stabiliser is an option of composite='chefer' and 'split_alpha_beta'"),
    ],
)
def test_wrong_stabilisers(request, method, options, message):
    case = case_of("vit_a", request)
    with pytest.raises(ValueError, match=message):
        lrptrain.attribute(case.model, case.inputs, case.target, method, **options)
