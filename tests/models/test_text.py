from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, StackDataset

from lrptrain.models import TextClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]

BERT = {
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


@pytest.fixture
def batches():
    """Texts of eight tokens whose label is whether token 7 stands in them."""
    tokens = torch.randint(8, 20, (512, 8), generator=torch.Generator().manual_seed(0))
    label = torch.arange(512) % 2
    tokens[label == 1, 3] = 7
    columns: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "label": label}
    return DataLoader(StackDataset(**columns), batch_size=32)


def test_training_from_a_folder_learns_and_its_checkpoint_outlives_the_folder(batches, tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "pretrained"
    source = TextClassifier(3, BERT)
    source.net.save_pretrained(folder)
    model = TextClassifier(2, str(folder), {"hidden_dropout_prob": 0.05}, lr=1e-2)
    assert torch.equal(
        model.net.bert.embeddings.word_embeddings.weight, source.net.bert.embeddings.word_embeddings.weight
    )

    modes = []
    model.net.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    run = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    run.fit(model, batches, batches)
    assert any(modes)
    assert set(run.callback_metrics) == {"train/loss", "val/loss", "val/accuracy"}
    assert run.callback_metrics["val/accuracy"] > 0.95
    assert run.test(model, batches, verbose=False)[0].keys() == {"test/accuracy"}

    run.save_checkpoint(tmp_path / "model.ckpt")
    for file in folder.iterdir():
        file.unlink()
    again = TextClassifier.load_from_checkpoint(tmp_path / "model.ckpt", map_location="cpu")
    batch = next(iter(batches))
    first, second = (each.eval()(batch["input_ids"], batch["attention_mask"]) for each in (model, again))
    assert torch.equal(first, second)
    assert again.net.config.hidden_dropout_prob == 0.05
    assert model.hparams_initial["model"] == str(folder)


def test_padding_does_not_change_the_logits():
    model = TextClassifier(2, BERT).eval()
    tokens = torch.randint(1, 20, (2, 6))
    padded = torch.nn.functional.pad(tokens, (0, 3))
    mask = torch.nn.functional.pad(torch.ones_like(tokens), (0, 3))
    assert torch.allclose(model(tokens, torch.ones_like(tokens)), model(padded, mask), atol=1e-5)
