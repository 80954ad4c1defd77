"""The length swap: a text takes the length of another text, its donor, and is made of its own words all the same.

What such a swap moves is the reliance on length, which lies at no token: none can be deleted or exchanged to show it.
A text that is merely cut loses words, too, and with them what speaks for its class. So a text is made at two lengths,
that of a donor of another class and that of a donor of its own, of exactly the same words of it: those that fit into
the shortest of the three texts, repeated to fill the longer ones. The two differ in how long they are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lrptrain.batch.content import attended_tokens, end_tokens
from lrptrain.cues.text_form import Padding, along_tokens, padding_of


def inner_tokens(batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return True at every attended token but the first and the last, where tokenizers put special tokens.

    Unlike the content, it has the tokens that a rationale ignores: a text is as long whatever people marked in it.
    """
    attended = attended_tokens(batch)
    return attended & ~end_tokens(attended)


def are_single_texts(batches: Sequence[Mapping[str, Tensor]], ends: Collection[int] = ()) -> bool:
    """Return whether no text is a pair, such as a question and an answer.

    Pairs have several token types, or within them the separator that all texts end with.

    Args:
        batches: Texts with `input_ids` and, where they have them, `attention_mask` and `token_type_ids`.
        ends: The special tokens that may be a separator; any token where nobody knows.
    """
    last_tokens: set[int] = set()
    for batch in batches:
        attended = attended_tokens(batch)
        # The last attended token of every text, wherever the padding is.
        last = attended & (attended.flip(1).cumsum(1).flip(1) == 1)
        last_tokens |= set(batch["input_ids"][last].tolist())
    # Where texts end differently, there is no separator, and a full stop at the end is a word.
    separators = last_tokens if len(last_tokens) == 1 and (not ends or last_tokens <= set(ends)) else set()
    for batch in batches:
        within = inner_tokens(batch)
        if "token_type_ids" in batch:
            types = batch["token_type_ids"]
            lowest = types.masked_fill(~within, types.max()).amin(1)
            highest = types.masked_fill(~within, 0).amax(1)
            if (within.any(1) & (highest > lowest)).any():
                return False
        if separators & set(batch["input_ids"][within].tolist()):
            return False
    return True


def at_lengths(
    batch: Mapping[str, Tensor], lengths: Sequence[Int[Tensor, " batch"]], padding: Padding | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield the texts at each of several lengths, every time made of the same of their own tokens.

    Args:
        batch: Texts with `input_ids` and `attention_mask`; the model's other arguments are kept.
        lengths: For each result the number of inner tokens (see `inner_tokens`) that every text is to have.
        padding: What fills up the results; None for what fills up the texts.
    """
    padding = padding_of(batch) if padding is None else padding
    own_length = inner_tokens(batch).sum(1)
    lengths = [length.clamp(min=1) for length in lengths]
    kept_length = torch.stack([own_length, *lengths]).amin(0).clamp(min=1)
    for length in lengths:
        yield _at_length(batch, own_length, kept_length, length, padding)


def _at_length(
    batch: Mapping[str, Tensor],
    own_length: Int[Tensor, " batch"],
    kept_length: Int[Tensor, " batch"],
    length: Int[Tensor, " batch"],
    padding: Padding,
) -> dict[str, Tensor]:
    """Return texts of another length, that begin and end as they did: what is cut or put in is in the middle.

    Args:
        batch: The texts.
        own_length: The number of inner tokens of every text.
        kept_length: How many of these it keeps: one half of them are its first ones, the other half its last ones.
        length: The number of inner tokens of the result, at least as many as are kept.
        padding: What fills up the result.
    """
    attended = attended_tokens(batch)
    width = int(length.max()) + 2
    offset = width - 2 - length[:, None] if padding.on_the_left else 0
    # [batch, width]: the number of each inner token; -1 is the special token before them, `length` that behind them.
    number = torch.arange(width, device=length.device) - 1 - offset
    is_text = (number >= -1) & (number <= length[:, None])
    # e.g. the inner tokens a b c d e f g, of which 4 are kept, a b f g, at the length 7: a b f g a f g. Their numbers
    # among the kept ones are 0 1 2 3 0 2 3: counted from the front, around the end, but for the last half.
    kept_length = kept_length[:, None]
    from_end = length[:, None] - number
    of_kept = torch.where(from_end <= kept_length // 2, kept_length - from_end, number % kept_length)
    # Among the text's own: 0 1 5 6 0 5 6.
    of_own = torch.where(
        of_kept < kept_length - kept_length // 2, of_kept, own_length[:, None] - (kept_length - of_kept)
    )
    of_own = torch.where(number < 0, -1, torch.where(number == length[:, None], own_length[:, None], of_own))
    # Among the attended tokens, which a stable sort puts first and leaves in their order.
    order = (~attended).to(torch.uint8).sort(dim=1, stable=True).indices
    places = order.gather(1, (of_own + 1).clamp(0, order.shape[1] - 1))
    longer = {"input_ids": batch["input_ids"].gather(1, places).masked_fill(~is_text, padding.token)}
    longer["attention_mask"] = is_text.to(batch["attention_mask"].dtype)
    return longer | along_tokens(batch, places, is_text)
