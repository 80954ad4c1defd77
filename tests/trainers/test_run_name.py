"""The name of a run is that of a folder."""

import pytest
import torch

import lrptrain
from lrptrain.callbacks import ExplanationAudit, RelevanceMonitor, SegmentationSeeds


@pytest.mark.parametrize("name", ["a/b", "a\\b", "..", ".", "", " ", "a\0"])
@pytest.mark.parametrize("part", [lrptrain.Run, ExplanationAudit, SegmentationSeeds])
def test_what_is_no_folder_is_refused(part, name):
    with pytest.raises(ValueError, match="run_name is the name of one folder"):
        part(run_name=name)


@pytest.mark.parametrize("name", [None, "plain", "a <b> & ü", "..x"])
def test_other_names_are_taken(name):
    assert RelevanceMonitor(run=lrptrain.Run(run_name=name)).config.run.run_name == name


def test_a_loop_refuses_it_too():
    with pytest.raises(ValueError, match="run_name is the name of one folder"):
        lrptrain.Monitor(torch.nn.Linear(2, 2), [{"image": torch.zeros(1, 3, 8, 8)}], run=lrptrain.Run(run_name="a/b"))
