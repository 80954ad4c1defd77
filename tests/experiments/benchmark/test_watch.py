"""One run under two monitors, on a small network; and a benchmark that stops by the clock goes on."""

from typing import Any

import numpy as np
import torch

from experiments.benchmark import run as command
from experiments.benchmark import watch
from experiments.benchmark.cases import Case
from experiments.vision import vit

CASE = Case("digits", "tag", 1.0, 0, 0)


def small_run(monkeypatch):
    """Three classes of a colour each, and one without, on 8 x 8 pixels."""
    torch.manual_seed(0)

    def columns(count: int) -> dict[str, torch.Tensor]:
        label = torch.arange(count) % 4
        image = torch.randn(count, 3, 8, 8) + 2 * torch.eye(4)[label][:, :3, None, None]
        mask = torch.zeros(count, 8, 8, dtype=torch.uint8)
        mask[:, 2:6, 2:6] = 1
        return {"image": image, "mask": mask, "label": label, "sample_id": torch.arange(count)}

    net = vit(4, 8, width=32, depth=1)
    look = {"mean": (0, 0, 0), "std": (1, 1, 1), "class_names": list("abcd")}
    head = net.get_submodule("head")
    made = watch.Run(net, head, columns(64), columns(64), columns(64), columns(64), look, 3e-3, 16)
    monkeypatch.setattr(watch, "prepared", lambda case: made)
    monkeypatch.setattr(watch, "MOMENTS", (2, 30))
    return made


def test_a_run_keeps_accuracies_findings_and_rivals_and_trains_as_without_monitors(monkeypatch):
    torch.set_num_threads(1)  # as in `watched`: other threads round otherwise
    plain = small_run(monkeypatch)
    step = watch.trained(plain, 30, CASE.randomness)
    step(2)
    step(30)
    made = small_run(monkeypatch)
    row = watch.watched(CASE)
    assert [each["step"] for each in row["evaluations"]] == [2, 30]
    last = row["evaluations"][-1]
    assert last["accuracy"] == watch.rounded(watch.right(plain.net, plain.shown).mean())
    assert last["accuracy"] > 0.8
    assert 0 <= last[watch.ANNOTATED]["on annotation"] <= 1
    assert last[watch.ANNOTATED]["chance"] == 0.25
    assert "on annotation" not in last[watch.BARE]
    for name in (watch.ANNOTATED, watch.BARE):
        assert all(0 < each["low"] <= each["effect"] <= 1 for each in last[name]["named"])
    assert last[watch.BARE]["named"]  # the colour
    assert not any(each["is_fault"] for each in last[watch.BARE]["named"])
    assert set(row["rivals"]) == {"spectral clustering", "error slice", "property correlation", "accuracy gap"}
    for one, other in zip(made.net.parameters(), plain.net.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_text_is_read_the_same_without_its_padding():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    net = BertForSequenceClassification(config).eval()
    mask = (torch.arange(10) < torch.tensor([[4], [6]])).long()
    columns = {"input_ids": torch.randint(1, 50, (2, 10)), "attention_mask": mask, "label": torch.zeros(2)}
    whole = net(input_ids=columns["input_ids"], attention_mask=mask).logits
    torch.testing.assert_close(watch.answers(net, columns), whole.detach())


def test_the_benchmark_goes_on_with_what_is_missing_and_begins_nothing_after_its_minutes(tmp_path, monkeypatch, capsys):
    cases = [Case("digits", "dust", 0.9, 0, number) for number in range(3)]
    done: list[Case] = []

    def watched(case: Case, own_code: bool) -> dict[str, Any]:
        assert not own_code
        done.append(case)
        return {"seconds": 1.0, "number": case.number}

    monkeypatch.setattr(command, "watched", watched)
    path = tmp_path / "test.jsonl"
    command.complete(path, cases[:1], 1)
    command.complete(path, cases, 0)
    assert "2 runs are left" in capsys.readouterr().out
    assert done == cases[:1]
    command.complete(path, cases, 1)
    assert done == cases
    assert [each["number"] for each in command.load(path).values()] == [0, 1, 2]
    assert all("torch" in each["made_on"] for each in command.load(path).values())


def test_numbers_are_short_and_nan_is_none():
    assert watch.rounded({"a": [np.float64(1 / 3), float("nan"), 3, True]}) == {"a": [0.3333, None, 3, True]}
