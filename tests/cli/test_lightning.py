"""Lightning's verbs make what the config says: of a checkpoint the weights alone are used."""

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import hostile
import pytest
import torch

from lrptrain.cli.lightning import lightning_cli

pytestmark = pytest.mark.filterwarnings(
    "ignore:No seed found",
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning",
    "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
)
TRAINER = ("--trainer.accelerator=cpu", "--trainer.logger=false", "--trainer.enable_progress_bar=false")


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The options that make a model and its data; modules of the working directory can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "digits.yaml").write_text(hostile.CONFIG, encoding="utf-8")
    return ["--config=digits.yaml", *TRAINER, "--trainer.max_epochs=1", "--ckpt_path=a.ckpt"]


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
def test_no_object_of_a_checkpoint_is_unpickled(verb, given, tmp_path):
    trace = hostile.leave_code(tmp_path)
    hostile.write_checkpoint(tmp_path / "a.ckpt", "an object", trace)
    with pytest.raises(Exception, match="Weights only load failed"):
        lightning_cli([verb, *given])
    assert not trace.exists()


def test_no_object_of_a_checkpoint_at_an_address_is_unpickled(given, tmp_path, monkeypatch):
    """Lightning by itself unpickles whatever an address gives."""
    trace = hostile.leave_code(tmp_path)
    hostile.write_checkpoint(tmp_path / "a.ckpt", "an object", trace)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(Exception, match="Weights only load failed"):
            lightning_cli(["validate", *given[:-1], f"--ckpt_path=http://127.0.0.1:{server.server_port}/a.ckpt"])
        server.shutdown()
    assert not trace.exists()


@pytest.mark.parametrize("name", ["a class to import", "a function to call"])
def test_nothing_that_a_checkpoint_names_is_imported(name, given, tmp_path, capsys):
    trace = hostile.leave_code(tmp_path)
    torch.save({**hostile.CONTENTS[name](trace), "epoch": 0, "global_step": 0}, "a.ckpt")
    lightning_cli(["validate", *given])
    assert "val/accuracy" in capsys.readouterr().out
    assert "evil" not in sys.modules
    assert not trace.exists()


def test_who_trusts_a_checkpoint_may_say_so(given, tmp_path, capsys):
    trace = tmp_path / "trace"
    torch.save({**hostile.CONTENTS["an object"](trace), "epoch": 0, "global_step": 0}, "a.ckpt")
    lightning_cli(["validate", *given, "--weights_only=false"])
    assert "val/accuracy" in capsys.readouterr().out
    assert trace.exists()
