"""The audit at the end of training: it tells, it writes, and it changes nothing."""

import json
import logging

import pytest
import torch
from examples import assert_same
from setting import PACKAGES, Points, data, loader, module, trainer, vit
from test_harmless import outcome

import lrptrain
from lrptrain.auditing import AuditSettings
from lrptrain.callbacks import ExplanationAudit, RelevanceMonitor

QUICK = AuditSettings(tests=("perturbation", "leave_one_out", "randomisation"), random_maps=1, stages=1)


def audit(**options):
    """One with the tests of a verdict alone."""
    default = {"methods": ["raw_attention", "random"], "max_samples": 10, "run_name": "run", "settings": QUICK}
    return ExplanationAudit(**{**default, "on_error": "raise", **options})


def varied(package=PACKAGES[0]):
    """A module whose predictions differ between samples, and stay as they are."""
    torch.manual_seed(0)
    net = vit()
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    pl_module = module(package, net)
    pl_module.configure_optimizers = lambda: torch.optim.SGD(pl_module.parameters(), lr=0.0)
    return pl_module


@pytest.mark.parametrize("package", PACKAGES)
def test_it_audits_once_at_the_end_and_says_so(package, tmp_path, caplog):
    logging.getLogger("pytorch_lightning").addHandler(caplog.handler)  # which does not pass its messages on
    first = package == PACKAGES[0]
    auditing, points = audit(budget=600), Points()
    runner = trainer(tmp_path, auditing, package=package, logger=points if first else False)
    runner.fit(varied(package), loader(data(20)), loader())
    assert auditing.result is not None
    assert auditing.result.about["samples"] == 10
    assert not any(unit.problem for unit in auditing.result.units)
    logging.getLogger("pytorch_lightning").removeHandler(caplog.handler)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert all(str(verdict) in messages for verdict in auditing.result.verdicts)
    folder = tmp_path / "relevance" / "run" / "audit"
    assert json.loads((folder / "results.json").read_text(encoding="utf-8"))["methods"] == ["raw_attention", "random"]
    assert (folder / "audit.html").exists()
    if first:
        logged = {key: value for _, row in points.rows for key, value in row.items() if key.startswith("audit/")}
        assert logged["audit/random/verdict"] == 0
        assert "audit/raw_attention/perturbation_gain" in logged


def test_training_is_the_same_to_the_bit(tmp_path):
    auditing = audit(budget=600)
    given = {"module_options": {"proj_drop_rate": 0.2, "attn_drop_rate": 0.2}, "precision": "bf16-mixed"}
    with_audit = outcome(tmp_path, [auditing], **given)
    assert auditing.result is not None
    assert not [unit.problem for unit in auditing.result.units if unit.problem]
    assert_same(outcome(tmp_path, [], **given), with_audit)


@pytest.mark.parametrize("inference_mode", [True, False])
def test_it_audits_in_validate_and_leaves_the_model(inference_mode, tmp_path):
    auditing, pl_module = audit(), module()
    before = {name: value.clone() for name, value in pl_module.state_dict().items()}
    runner = trainer(tmp_path, auditing, inference_mode=inference_mode)
    runner.validate(pl_module, loader(), verbose=False)
    assert auditing.result is not None
    assert not [unit.problem for unit in auditing.result.units if unit.problem]
    assert all(torch.equal(value, before[name]) for name, value in pl_module.state_dict().items())
    assert all(p.grad is None and not p.is_inference() for p in pl_module.parameters())
    assert (tmp_path / "relevance" / "run-validate" / "audit" / "audit.html").exists()


class OwnMonitor(RelevanceMonitor):
    """A user's subclass of the monitor."""


@pytest.mark.parametrize("kind", [RelevanceMonitor, OwnMonitor])
def test_it_writes_beside_the_monitor(kind, tmp_path):
    watching, auditing = (
        kind(max_samples=8, show=lrptrain.Show(max_pictures=2), run=lrptrain.Run(run_name="watched")),
        audit(budget=1e-3),
    )
    trainer(tmp_path, watching, auditing, max_epochs=1).fit(module(), loader(), loader())
    assert (tmp_path / "relevance" / "watched" / "audit" / "audit.html").exists()
    assert not (tmp_path / "relevance" / "run").exists()


def test_a_failure_is_one_warning_and_training_counts(tmp_path, monkeypatch):
    auditing = audit(on_error="warn")
    pl_module = module()
    monkeypatch.setattr(pl_module, "forward", lambda image: pl_module.net(image)[:, None])  # no logits
    monkeypatch.setattr(pl_module, "training_step", lambda batch, batch_idx: pl_module(batch["image"]).sum())
    with pytest.warns(UserWarning, match="ExplanationAudit failed while auditing") as told:
        trainer(tmp_path, auditing, max_epochs=1).fit(pl_module, loader(), loader())
    assert len([each for each in told if "ExplanationAudit" in str(each.message)]) == 1
    assert auditing.result is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["magic"]}, "unknown method 'magic'"),
        ({"max_samples": 0}, "max_samples"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"task": "magic"}, "task"),
        ({"run_name": "a/b"}, "run_name"),
    ],
)
def test_wrong_arguments_fail_at_construction(options, message):
    with pytest.raises(ValueError, match=message):
        audit(**options)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_what_cannot_work_fails_before_the_first_step(tmp_path):
    with pytest.raises(ValueError, match="draws its sample from the validation"):
        trainer(tmp_path, audit()).fit(module(), loader())
    with pytest.raises(ValueError, match="no such attribute"):
        trainer(tmp_path, audit(model="nett")).fit(module(), loader(), loader())
    with pytest.raises(ValueError, match="dataloader_idx=1"):
        trainer(tmp_path, audit(dataloader_idx=1)).fit(module(), loader(), loader())
