"""Two processes tell what one tells, and a failure in one of them stops neither."""

import numpy as np
import pytest
from PIL import Image
from processes import folders_of, result

from lrptrain.loggers import read_events, read_findings, read_samples

FLOAT32 = 1e-3  # training itself rounds differently: 2e-4 measured in the share of one sample
COSTS = ("relevance/seconds", "relevance/cost_share", "relevance/record_mb")

folders = folders_of("ddp_script.py")


def assert_close(one, other, tolerance, key=""):
    if isinstance(one, dict):
        assert one.keys() == other.keys(), key
        for name in one.keys() - set(COSTS):
            assert_close(one[name], other[name], tolerance, f"{key}/{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), key
        for pair in zip(one, other, strict=True):
            assert_close(pair[0], pair[1], tolerance, key)
    elif isinstance(one, float):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=key)
    else:
        assert one == other, key


@pytest.mark.parametrize(("name", "tolerance"), [("float64", 1e-9), ("float32", FLOAT32)])
def test_two_processes_write_what_one_writes(folders, name, tolerance):
    one, two = (folder / "relevance" / name for folder in folders)
    assert_close(read_events(one), read_events(two), tolerance)
    assert_close(read_samples(one), read_samples(two), tolerance)
    findings = [[finding.to_dict() for finding in read_findings(folder)] for folder in (one, two)]
    assert findings[0]
    assert_close(findings[0], findings[1], tolerance)
    drawn = [sorted(path.relative_to(folder) for path in folder.rglob("*.png")) for folder in (one, two)]
    assert drawn[0] == drawn[1]
    assert len([path for path in drawn[0] if path.parts[0] == "pictures"]) == 10
    for path in drawn[0]:
        pixels = [np.asarray(Image.open(folder / path)).astype(int) for folder in (one, two)]
        # A score that differs by the tolerance moves its colour by as much of the scale; one level more by rounding.
        assert np.abs(pixels[0] - pixels[1]).max() <= 1 + 255 * 8 * tolerance


def test_the_best_checkpoint_is_evaluated_alike_by_both(folders):
    one, two = (read_events(folder / "relevance" / "kept") for folder in folders)
    assert_close(one, two, 1e-9)
    assert [event["weights"]["epoch"] for event in two] == [0, 1, 0]
    first, second = (result(folders[1], "kept", rank) for rank in (0, 1))
    assert first["failures"] == second["failures"] == 0
    assert one[2]["scalars"]["relevance/accuracy"] == one[0]["scalars"]["relevance/accuracy"]


def test_all_processes_see_the_same_scalars_and_share_the_work(folders):
    first, second = (result(folders[1], "float64", rank) for rank in (0, 1))
    assert_close(first["scalars"], second["scalars"], 0)
    assert first["mine"] + second["mine"] == 15
    assert min(first["mine"], second["mine"]) > 0
    assert not first["told"] + second["told"]


def test_a_failure_in_one_process_stops_neither(folders):
    first, second = (result(folders[1], "failing", rank) for rank in (0, 1))
    assert (first["failures"], second["failures"]) == (1, 1)
    assert "RuntimeError: only here (process 1)" in first["told"][0]
    assert "computing relevance: RuntimeError: only here" in second["told"][0]
    assert first["scalars"]["relevance/failures"] == 1
    assert [event["epoch"] for event in read_events(folders[1] / "relevance" / "failing")] == [0]


def test_an_intervention_that_fails_in_one_process_is_counted_in_all(folders):
    first, second = (result(folders[1], "unproved", rank) for rank in (0, 1))
    assert first["failures"] == second["failures"] > 0
    assert "could not be swapped: RuntimeError: only here" in first["told"][0]
    assert [event["epoch"] for event in read_events(folders[1] / "relevance" / "unproved")] == [0, 1]
