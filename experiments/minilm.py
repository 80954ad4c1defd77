"""The small BERT of the experiments on texts."""

import torch
from torch import nn
from transformers.utils import logging

from lrptrain.models.pretrained import huggingface_classifier

BLOCKS = 3


def network(seed: int) -> nn.Module:
    """MiniLM's first three blocks without dropout; its embeddings stay as they are."""
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    options = {"num_hidden_layers": BLOCKS, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    net = huggingface_classifier("AutoModelForSequenceClassification", "minilm", 2, **options)
    net.bert.embeddings.requires_grad_(False)
    return net
