"""Strategies of others bring an adapter by an entry point."""

import sys

import pytest
import torch
from adapted_runs import install, run, with_the_package
from gloo import in_processes

from lrptrain.trainers.strategies import BUILT_IN, StrategyAdapter, adapter_of, check_strategy, installed


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """The folder of an installed package, in which Python looks."""
    install(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    installed.cache_clear()
    yield tmp_path / "packages"
    installed.cache_clear()
    sys.modules.pop("their_strategies", None)


def test_the_monitor_takes_a_strategy_by_the_adapter_of_its_package(tmp_path):
    """Both processes are given all samples: without an adapter each would come twice."""
    install(tmp_path / "packages")
    alone = run(tmp_path / "alone")
    processes = in_processes(with_the_package, 2, tmp_path / "run", tmp_path / "packages", tmp_path / "two")
    assert len(set(alone["ids"])) == 12
    for each in processes:
        assert each["failures"] == 0
        assert each["ids"] == alone["ids"]
        for mine, whole in zip(each["maps"], alone["maps"], strict=True):
            torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-6)
    assert sum(each["mine"] for each in processes) == 12
    assert min(each["mine"] for each in processes) > 1
    # The first process says, in a line each, which adapters cannot be used.
    first = [line.replace("\n", " ") for line in processes[0]["told"]]
    assert len(first) == 2
    assert "'gone' (their_other_strategies:Adapter) is not used: ModuleNotFoundError: No module named" in first[0]
    assert "'number' (their_strategies:NO_ADAPTER) is not used: TypeError: it is no StrategyAdapter, but a" in first[1]
    assert processes[1]["told"] == []


@pytest.mark.filterwarnings("ignore:the strategy adapter")
def test_an_installed_adapter_comes_before_those_that_are_built_in(packages):
    from pytorch_lightning.strategies import FSDPStrategy, SingleDeviceStrategy
    from their_strategies import WithDTensors

    theirs = object.__new__(WithDTensors)
    check_strategy(theirs, takes_shards=True)
    with pytest.raises(ValueError, match=r"^RelevanceGuidance gathers nothing: use SameBatches$"):
        check_strategy(theirs, "RelevanceGuidance")
    with pytest.raises(ValueError, match="which FSDPStrategy shards"):
        check_strategy(object.__new__(FSDPStrategy), takes_shards=True)
    assert adapter_of(SingleDeviceStrategy("cpu")) is BUILT_IN[-1]


def test_without_packages_there_are_those_that_are_built_in():
    installed.cache_clear()
    assert installed() == ()
    plain = StrategyAdapter()
    assert plain.serves(object())
    assert plain.refusal(object(), takes_shards=False) == ""
    assert plain.data_share(object()) is None
