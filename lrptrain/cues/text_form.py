"""How the texts of a model are made up: what fills them up, what they end with, and how long they may be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from lrptrain.batch.content import attended_tokens

_ENDS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")


class Padding(NamedTuple):
    """What fills up the shorter texts of a batch.

    Attributes:
        token: Its id. Models that look for the padding by its id need that of their tokenizer.
        on_the_left: Whether it stands before the texts.
    """

    token: int = 0
    on_the_left: bool = False


ZERO_BEHIND = Padding()
"""What is taken where nobody says anything else."""


@dataclass(frozen=True)
class TextForm:
    """What is known of a model's texts beside a batch of them.

    Attributes:
        tokenizer: What reads them; None where nobody names it.
        padding: What fills up a batch that shows no padding itself.
        ends: The special tokens that texts begin or end with; empty where nobody knows.
        most: So many tokens a text may have, special ones included; 0 for as many as its batch has.
    """

    tokenizer: Any = None
    padding: Padding = ZERO_BEHIND
    ends: frozenset[int] = frozenset()
    most: int = 0


def text_form(tokenizer: Any, model: nn.Module) -> TextForm:
    """Return what a tokenizer and a model say of their texts."""
    configs = [module.config for module in model.modules() if hasattr(getattr(module, "config", None), "to_dict")]
    config = configs[0] if configs else None
    # The model's own word first: some look for the padding by its id. 0 is a token, too; None means that there is none.
    tokens = [getattr(each, "pad_token_id", None) for each in (config, tokenizer)]
    padding = next((token for token in tokens if isinstance(token, int)), 0)
    named = [getattr(tokenizer, name, None) for name in _ENDS]
    limits = [_limit(tokenizer, "model_max_length"), _positions(config, model)]
    known = [limit for limit in limits if limit]
    return TextForm(
        tokenizer,
        Padding(padding, getattr(tokenizer, "padding_side", "right") == "left"),
        frozenset(token for token in named if isinstance(token, int)),
        # A model of one's own may take texts of one length alone.
        min(known) if known and config is not None else 0,
    )


def padding_of(batch: Mapping[str, Tensor], otherwise: Padding = ZERO_BEHIND) -> Padding:
    """Return what fills up the texts of a batch."""
    attended = attended_tokens(batch)
    padding = batch["input_ids"][~attended]
    if not len(padding):
        return otherwise
    # One text that begins with its padding tells for all.
    return Padding(int(padding[0]), bool((~attended[:, 0] & attended.any(1)).any()))


def _limit(source: Any, name: str) -> int:
    """Return a number of tokens; 0 where there is none. Tokenizers that know of no limit say 10^30."""
    limit = getattr(source, name, None)
    return limit if isinstance(limit, int) and 0 < limit < 10**6 else 0


def _positions(config: Any, model: nn.Module) -> int:
    """Return how many tokens a model has positions for; 0 where it does not say so."""
    limit = _limit(config, "max_position_embeddings")
    for name, module in model.named_modules():
        # RoBERTa counts positions from the id of its padding on.
        if isinstance(module, nn.Embedding) and "position" in name and module.num_embeddings == limit:
            return limit - (0 if module.padding_idx is None else module.padding_idx + 1)
    return limit
