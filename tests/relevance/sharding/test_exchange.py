"""Processes ask each other for weights; who asks for none waits for the others."""

import torch
from gloo import in_processes
from sharded_work import asked_apart, of_different_models


def test_each_gets_what_it_asks_for_and_all_wait_for_the_last(tmp_path):
    found = in_processes(asked_apart, 3, tmp_path)
    for rank, weights in enumerate(found):
        assert len(weights) == rank
        # Rows that three processes cannot share evenly, of the module that this process asked for.
        assert all(torch.equal(x, torch.full((4, 2), float(i))) for i, x in enumerate(weights))


def test_processes_with_different_models_are_told_so(tmp_path):
    for message in in_processes(of_different_models, 2, tmp_path):
        assert "UnsupportedModelError: the processes explain different models" in message
