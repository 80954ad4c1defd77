"""Run the recorded model again, on other values of the explained input, or without some of its tokens."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lrptrain.relevance.advice import other_methods
from lrptrain.relevance.explanation import NO_GRADIENT, Explanation
from lrptrain.relevance.model.arguments import mask_name
from lrptrain.relevance.model.preserve import begin_anew
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.passes.plain_pass import Lookups, PlainPass
from lrptrain.relevance.passes.recording import Inputs, Recording, explained_input
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.tape.lookup import Table
from lrptrain.relevance.tape.nodes import tensors_in
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError


def rerun(
    recording: Recording,
    values: Float[Tensor, "rows ..."],
    rows: Int[Tensor, " rows"] | None = None,
    attention_mask: Tensor | None = None,
) -> Any:
    """The model's output for other pixels or word embeddings, with its own attention kernels.

    Each run begins with the model as it was when the explanation began.

    Args:
        recording: The recorded pass of the batch as it is.
        values: The pixels or word embeddings that take the place of `recording.watched.root`. Gradients flow to them
            where enabled.
        rows: Which sample of the batch each of them stands for; the model's other inputs are taken from there. Without
            them, `values` is one or several whole copies of the batch, one behind the other.
        attention_mask: The mask that takes the place of the recorded one (texts).

    Raises:
        UnsupportedModelError: If earlier runs have changed the answer for good.
    """
    _begin(recording)
    name, original = explained_input(recording.inputs, recording.explain)
    if rows is None:
        rows = torch.arange(len(values), device=original.device) % recording.samples
    text = recording.watched.token_ids is not None
    replacement = original[rows] if text else values
    arguments = recording.inputs if isinstance(recording.inputs, Mapping) else {}
    others = {key: _of_samples(x, rows, recording.samples) for key, x in arguments.items() if key != name}
    mask = mask_name(recording.inputs, name)
    if attention_mask is not None and mask is not None:
        others[mask] = attention_mask
    with ExitStack() as stack:
        stack.enter_context(eager())
        stack.enter_context(recording.autocast.restored())
        unchanged = tuple(tensors_in(others))
        tables = tuple(_of_samples_looked_up(table, rows) for table in recording.watched.tables)
        stack.enter_context(Lookups(replacement if text else None, values, unchanged, tables))
        stack.enter_context(_of_any_size(recording, len(values)))
        if not isinstance(recording.inputs, Mapping):
            return recording.model(replacement)
        return recording.model(**others | {name: replacement})


def _begin(recording: Recording) -> None:
    """Let the model be as it was for the first run, or refuse a model of which that cannot be said."""
    lost = begin_anew(recording.model)
    if lost and recording.keeps_answer is None:
        recording.keeps_answer = True
        with torch.no_grad():
            again = recording.head.read(rerun(recording, recording.leaf.detach()), recording.samples)
        first = recording.logits
        recording.keeps_answer = torch.allclose(again, first, rtol=0.0, atol=1e-4 * max(1.0, float(first.abs().max())))
    if lost and not recording.keeps_answer:
        raise UnsupportedModelError(
            f"the method runs the model several times, and each run changes what the next one answers: {lost[0]}; take "
            f"{other_methods('attnlrp', 'generic_attention', 'input_x_gradient')}, which run it once"
        )


@contextmanager
def _of_any_size(recording: Recording, rows: int) -> Iterator[None]:
    """An exported model may have been made for one size of the batch, and asserts it."""
    try:
        yield
    except AssertionError as error:
        if rows == recording.samples or "Guard failed" not in str(error):
            raise
        raise UnsupportedModelError(
            f"the model was exported for batches of another size than {rows}: give at_once={recording.samples}, or "
            "export it with dynamic_shapes"
        ) from error


def _of_samples_looked_up(table: Table, rows: Tensor) -> Table:
    return table if table.ids is None else Table(table.weight, table.ids[rows])


def _of_samples(x: Any, rows: Tensor, samples: int) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x[rows] if x.ndim and x.shape[0] == samples else x.clone()


def answers(
    explanation: Explanation,
    values: Float[Tensor, "rows ..."],
    rows: Int[Tensor, " rows"],
    attention_mask: Tensor | None = None,
    *,
    probability: bool = False,
) -> Float[Tensor, " rows"]:
    """The explained logit, or probability, for other values of the samples `rows`; see `rerun`."""
    recording = explanation.recording
    if len(rows) > 1 and isinstance(recording.watched, PlainPass) and recording.watched.only_answers:
        # Dynamic quantisation scales by the range of a whole batch, of which a sample's answer must not depend.
        masks = [None] * len(rows) if attention_mask is None else torch.split(attention_mask, 1)
        each = zip(torch.split(values, 1), torch.split(rows, 1), masks, strict=True)
        return torch.cat([answers(explanation, *one, probability=probability) for one in each])
    if probability and (recording.head.functions or recording.output.shape[1] < 2):
        raise UnsupportedMethodError(
            "of='probability' needs the logits of two classes or more; take of='logit', or a target that returns the "
            "probability"
        )
    head = None if _has_nested_tensors(recording.inputs) else recording.head.of_samples(rows)
    if head is None:
        return _answers_of_whole_batches(explanation, values, rows, attention_mask)
    logits = at_least_float32(head.read(rerun(recording, values, rows, attention_mask), len(rows)))
    return explanation.explained(logits.softmax(1) if probability else logits, rows)


def _has_nested_tensors(inputs: Inputs) -> bool:
    """Whether some arguments hold tensors of which the samples cannot be told."""
    others = () if isinstance(inputs, Tensor) else inputs.values()
    return any(next(tensors_in(x), None) is not None for x in others if not isinstance(x, Tensor))


def _answers_of_whole_batches(
    explanation: Explanation,
    values: Float[Tensor, "rows ..."],
    rows: Int[Tensor, " rows"],
    attention_mask: Tensor | None,
) -> Float[Tensor, " rows"]:
    """The same for a target that cannot be asked for some samples: the others of the batch are there as they were."""
    recording = explanation.recording
    everyone = torch.arange(recording.samples, device=rows.device)
    original = recording.leaf.detach().to(values.dtype)
    # rows 0 0 1 are the batches (0, 1) and (0, the second sample as it was): earlier counts the same sample before it.
    earlier = (rows[:, None] == rows).tril(-1).sum(1)
    parts = []
    places = []
    for number in range(int(earlier.max()) + 1):
        chosen = (earlier == number).nonzero()[:, 0]
        batch = original.index_put((rows[chosen],), values[chosen])
        mask = recording.padding
        if attention_mask is not None and mask is not None:
            mask = mask.index_put((rows[chosen],), attention_mask[chosen].to(mask.dtype))
        output = rerun(recording, batch, everyone, mask)
        numbers = at_least_float32(recording.head.read(output, recording.samples))
        parts.append(explanation.explained(numbers)[rows[chosen]])
        places.append(chosen)
    return torch.cat(parts)[torch.cat(places).argsort()]


def input_gradient(
    explanation: Explanation, values: Float[Tensor, "rows ..."], rows: Int[Tensor, " rows"]
) -> Float[Tensor, "rows ..."]:
    """Gradient of the explained logits at other values of the samples `rows`.

    With `create_graph` it carries its own gradient, and attention is computed without fused kernels, which have none.
    """
    again = explanation.create_graph
    with torch.enable_grad(), ExitStack() as stack:
        if again:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        values = values if again and values.requires_grad else values.detach().requires_grad_()
        read = values.clone()  # a model may write into what it was given
        answer = answers(explanation, read, rows).sum()
        with explanation.recording.watched.reporting_functions():
            asked = [values] if answer.requires_grad else []
            gradients = torch.autograd.grad(answer, asked, create_graph=again, allow_unused=True) if asked else ()
        gradient = next(iter(gradients), None)
        if gradient is None:
            raise UnsupportedModelError(NO_GRADIENT)
    return gradient


def in_parts(samples: int, copies: int, at_once: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """All pairs (copy, sample), at most `at_once` of them together: the rows of one forward pass.

    All copies of a sample stand together: a model may need its samples sorted by their length.
    """
    if copies < 1 or at_once < 1:
        raise ValueError(f"steps, samples and at_once must be 1 or more, not {copies} with at_once={at_once}")
    for part in torch.split(torch.arange(copies * samples, device=device), at_once):
        yield part % copies, part // copies


# -- Without some tokens -----------------------------------------------------------------------------------------------


def answers_without(
    explanation: Explanation,
    present: Bool[Tensor, "rows tokens"],
    rows: Int[Tensor, " rows"],
    *,
    baseline: float = 0.0,
    probability: bool = False,
) -> Float[Tensor, " rows"]:
    """The explained logit, or probability, of the samples `rows` when only the `present` tokens are there.

    A patch is taken away by giving its pixels the value `baseline`; a token by giving its word embedding that value
    and, where the model was given an `attention_mask`, by masking it out there, too, so that no other token attends to
    it. The one token that a classifier reads stays in the mask, since some models let what is masked read nothing; and
    a text of which nothing is left does (a softmax over nothing does not exist).
    """
    leaf = explanation.recording.leaf
    original = leaf if explanation.create_graph else leaf.detach()
    values, mask = without(explanation.recording, original, present, rows, baseline)
    return answers(explanation, values, rows, mask, probability=probability)


def without(
    recording: Recording,
    original: Float[Tensor, "batch ..."],
    present: Bool[Tensor, "rows tokens"],
    rows: Int[Tensor, " rows"],
    baseline: float = 0.0,
) -> tuple[Float[Tensor, "rows ..."], Tensor | None]:
    """What to run the model on, see `rerun`: pixels or embeddings of the samples `rows`, and the mask of texts."""
    is_present = recording.explained.at_places(present, True)
    # Of other inputs than texts the model's own mask says how long they are, not what is to be seen of them.
    mask = _mask(recording, present, rows) if recording.explained.kind in ("text", "sequence") else None
    return torch.where(is_present, original[rows], baseline), mask


def _mask(recording: Recording, present: Tensor, rows: Tensor) -> Tensor | None:
    if recording.padding is None or recording.mask is None or recording.mask.shape != recording.padding.shape:
        return None
    mask = recording.mask[rows]
    empty = ~(present & mask.bool()).any(1, keepdim=True)
    return torch.where(present | empty | _read_alone(recording)[rows], mask, torch.zeros_like(mask))


def _read_alone(recording: Recording) -> Bool[Tensor, "batch tokens"]:
    """The token that the classifier reads, where it is one only."""
    assert recording.padding is not None
    try:
        pooled = recording.on_tape.pooling > 0
        alone = pooled & (pooled.sum(1, keepdim=True) == 1)
        return recording.on_tape.layout.content(alone)  # a text may share its sequence with an image
    except (UnsupportedModelError, UnsupportedMethodError):  # no attention: nothing says what is read
        return torch.zeros_like(recording.padding, dtype=torch.bool)
