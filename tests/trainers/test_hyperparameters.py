import json
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from lrptrain.trainers.hyperparameters import MOST, find_hyperparameters


class Module:
    def __init__(self, **hparams):
        self.hparams = hparams


@dataclass
class Arguments:
    learning_rate: float = 5e-5
    bf16: bool = False
    seed: int = 42
    hub_token: str | None = None
    label_names: list[str] = field(default_factory=list)


def test_plain_values_are_found_by_dotted_names_and_the_first_source_counts():
    module = Module(
        lr=0.1, model={"depth": 2, "net": nn.Linear(1, 1), "betas": (0.9, 0.999)}, name="x" * 999, nothing=None
    )
    hyperparameters = find_hyperparameters([module, None, object(), Module(lr=0.2, batch_size=8)])
    assert hyperparameters == {
        "lr": 0.1,
        "model.depth": 2,
        "model.betas": "[0.9, 0.999]",
        "name": "x" * 120,
        "batch_size": 8,
    }
    json.dumps(hyperparameters, allow_nan=False)


def test_an_optimizer_gives_the_rate_it_began_with():
    optimizer = torch.optim.AdamW(nn.Linear(1, 1).parameters(), lr=0.1, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert find_hyperparameters([optimizer]) == {"optimizer": "AdamW", "lr": 0.1, "weight_decay": 0.05}


def test_of_settings_only_what_was_set_counts():
    assert find_hyperparameters([Arguments(learning_rate=1e-3, bf16=True)]) == {"learning_rate": 1e-3, "bf16": True}


def test_secrets_objects_and_what_is_too_much_are_left_out():
    secret = {
        "hub_token": "x",
        "wandb": {"api_key": "x"},
        "password": "x",
        "tokens": 7,
        "nan": float("nan"),
        "f": print,
    }
    assert find_hyperparameters([Arguments(hub_token="x"), secret]) == {"tokens": 7}
    assert len(find_hyperparameters([{str(i): i for i in range(1000)}])) == MOST
    nested: dict = {}
    nested["again"] = nested
    assert find_hyperparameters([nested]) == {}


SECRETS = (
    "apiToken api-key HF_TOKEN wandb.apiKey aws_secret_access_key aws_access_key_id private_key client_secret "
    "secret_key PASSWORD dbPassword password_hash apikey openai_api_key DB_PASSWD"
)


@pytest.mark.parametrize("name", SECRETS.split())
def test_a_secret_is_known_however_it_is_spelled(name):
    assert find_hyperparameters([{name: "x", "lr": 0.1}]) == {"lr": 0.1}


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokenizer", "image_key", "monkey", "pad_token_id", "key", "token_dropout"]
)
def test_what_only_sounds_like_a_secret_is_kept(name):
    assert find_hyperparameters([{name: "x"}]) == {name: "x"}


def test_an_address_with_a_password_is_left_out():
    addresses = {"tracking": "https://me:pass@host/runs", "storage": "sqlite:///runs.db", "page": "http://host:80/@me"}
    assert find_hyperparameters([addresses]) == {"storage": "sqlite:///runs.db", "page": "http://host:80/@me"}


def test_a_long_configuration_leaves_room_for_what_stands_behind_it():
    hyperparameters = find_hyperparameters([Module(config={str(i): i for i in range(1000)}, lr=0.1)])
    assert next(iter(hyperparameters)) == "lr"
