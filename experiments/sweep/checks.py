"""What must hold of a map: each check gives a word where it does not."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import lrptrain
from experiments.sweep.case import SAMPLES, Subject
from experiments.sweep.words import METHODS, OK
from lrptrain.relevance.output.heads import as_head
from lrptrain.relevance.passes.recording import explained_input
from lrptrain.relevance.types import (
    NonFiniteError,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
)

# Where relu takes all that speaks against the class, nothing may be left.
MAY_BE_ZERO = frozenset({"gradcam", "generic_attention", "transformer_attribution"})
# The path of integrated gradients is short, so that few steps suffice; kinks of relu leave an error.
NEAR, NEARER, STEPS, KINKS = 0.9, 0.9999, 3, 0.02
INCOMPLETE = "wrong: not complete"
# Of sums over the logits' many terms, in float64.
ROUNDING = 1e-12
# How far from 1 a row of attention may sum, in float32.
SUM = 1e-3
REFUSALS = (UnsupportedOperationError, UnsupportedModelError, UnsupportedMethodError, NonFiniteError)


class Census(TorchDispatchMode):
    """What the attention of a plain forward pass is between, as far as shapes tell.

    Attributes:
        samples: Number of samples.
        lengths: Of each square attention, between how many tokens it is.
        crossed: Of each other attention, how many tokens attend, where it is more than one.
        cut: Whether attention is in windows.
        merged: Whether latent tokens read those of the input, or tokens are merged after the first attention.
    """

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples = samples
        self.lengths: list[int] = []
        self.crossed: set[int] = set()
        self.cut = False
        self.merged = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name.startswith("_scaled_dot_product"):
            self._attends((*args[0].shape[:-1], args[1].shape[-2]))
        elif name in ("_softmax", "_safe_softmax") and out.ndim >= 3:
            self._attends(tuple(out.shape))
        elif name == "convolution" and self.lengths:
            stride, transposed = args[3], args[6]
            self.merged = self.merged or transposed or max(stride) > 1
        return out

    def _attends(self, shape: tuple[int, ...]) -> None:
        queries, keys = shape[-2:]
        if queries == keys:
            self.lengths.append(keys)
            windows = (len(shape) >= 4 and shape[0] != self.samples) or (len(shape) >= 5 and max(shape[1:-3]) > 1)
            self.cut = self.cut or windows
        elif len(shape) >= 4 and queries > 1:  # of three axes it may be a router's choice of experts
            self.crossed.add(queries)
            self.merged = self.merged or not self.lengths

    @property
    def kind(self) -> str:
        """none, global (every block sees all tokens) or local (windows, reduced or merged tokens).

        A decoder's tokens attend to one another, too. Where all tokens attend to few merged ones, they do not.
        """
        if max(self.lengths, default=1) == 1:
            return "none"
        lengths = set(self.lengths)
        same = len(lengths) == 1 and self.crossed <= lengths
        return "global" if same and not self.cut and not self.merged else "local"


class Coarsest(TorchDispatchMode):
    """The coarsest precision that a forward pass goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = torch.finfo(torch.float64).eps

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor) and x.is_floating_point() and x.numel() > 1:
                self.eps = max(self.eps, torch.finfo(x.dtype).eps)
        return out


def bound(subject: Subject, model: nn.Module | None = None) -> float:
    """Half of the digits of the coarsest precision that the model computes in."""
    coarsest = Coarsest()
    with torch.no_grad(), coarsest:
        subject.run(model=model)
    return coarsest.eps**0.5


def attention_kind(subject: Subject) -> str:
    """What attention the model has."""
    census = _census(subject, subject.inputs)
    if census.kind != "global":
        return census.kind
    try:
        shorter = _census(subject, halved(subject.inputs))
    except Exception:  # many models take inputs of one size only
        return census.kind
    # Attention between channels, or between latent tokens, is as large for any input.
    return "local" if shorter.lengths[:1] == census.lengths[:1] else census.kind


def _census(subject: Subject, inputs: Any) -> Census:
    census = Census(SAMPLES)
    with census:  # with gradients, so that torch takes none of its fused encoder layers
        subject.run(inputs)
    return census


def halved(inputs: Any) -> Any:
    """The first half of an image's columns, of a sound or of a text, and of its mask."""
    if isinstance(inputs, Tensor):
        return inputs[..., : inputs.shape[-1] // 2]
    return {name: halved(x) if isinstance(x, Tensor) else x for name, x in inputs.items()}


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model that a map must leave as it was."""
    found: dict[str, Any] = {f"value of {name}": x.clone() for name, x in model.state_dict().items()}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute not in ("_parameters", "_buffers", "_modules"):
                found[f"{name}.{attribute}"] = dict(value) if isinstance(value, dict) else _frozen(value)
        for attribute, buffer in module._buffers.items():
            found[f"buffer {name}.{attribute}"] = id(buffer)
    for name, parameter in model.named_parameters():
        found[f"grad of {name}"] = parameter.grad
        found[f"flag of {name}"] = parameter.requires_grad
    return found


def _frozen(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def touched(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    changed = list(before.keys() ^ after.keys())
    changed += [name for name in before.keys() & after.keys() if not _same(before[name], after[name])]
    return sorted(changed)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a.isnan() & b.isnan())).all())
    if isinstance(a, Tensor) or isinstance(b, Tensor) or type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    try:
        return bool(a == b)
    except Exception:
        return True


def verdicts(subject: Subject, methods: tuple[str, ...] = METHODS) -> Iterator[tuple[str, str]]:
    """By method ok, a refusal, or what is wrong with the map; last "model" if it was changed."""
    limit = bound(subject)
    before = state(subject.model)
    modes = [module.training for module in subject.model.modules()]
    recordings = _recordings(subject)
    for method in methods:
        if isinstance(recordings, str):
            yield method, recordings
        else:
            yield method, _guarded(lambda name=method: _verdict(subject, recordings, name, limit))
    changed = touched(before, state(subject.model))
    if changed or modes != [module.training for module in subject.model.modules()]:
        yield "model", f"wrong: changed {', '.join(changed[:3])}"


def _recordings(subject: Subject) -> Any:
    def both() -> Any:
        return lrptrain.record(subject.model, subject.inputs, **subject.options), lrptrain.record(
            subject.model, subject.sample(1), **subject.options
        )

    pairs: list[Any] = []

    def record_both() -> str:
        pairs.append(both())
        return OK

    said = _guarded(record_both)
    return pairs[0] if said == OK else said


def _guarded(call: Any) -> str:
    try:
        return call()
    except REFUSALS as error:
        message = str(error)
        return f"refused: {message}" if "\n" not in message else f"traceback: a refusal in several lines: {message}"
    except (ValueError, TypeError) as error:
        frame = _last_frame(error)
        kind = "refused" if "lrptrain/relevance" in frame and "raise" in frame else "traceback"
        return f"{kind}: {type(error).__name__}: {_short(error)}" + ("" if kind == "refused" else f" [{frame}]")
    except MemoryError:
        raise
    except Exception as error:
        if "can't allocate memory" in str(error):
            return "died: no memory left"
        return f"traceback: {type(error).__name__}: {_short(error)} [{_last_frame(error)}]"


def _short(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:200]


def _last_frame(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    at = "/".join(last.filename.split("/")[-3:])
    ours = [frame for frame in frames if "lrptrain/relevance" in frame.filename]
    return f"{at}:{last.lineno} {last.line or ''}" + (
        f" < {ours[-1].filename.split('/')[-1]}:{ours[-1].lineno}" if ours and ours[-1] is not last else ""
    )


def _verdict(subject: Subject, recordings: Any, method: str, limit: float) -> str:
    if method != "integrated_gradients":
        return _verdict_with(subject, recordings, method, limit)
    said = _verdict_with(subject, recordings, method, limit, NEAR)
    # Where random weights make many kinks, fewer of them are on a shorter path.
    return _verdict_with(subject, recordings, method, limit, NEARER) if said.startswith(INCOMPLETE) else said


def _verdict_with(subject: Subject, recordings: Any, method: str, limit: float, near: float | None = None) -> str:
    """What is wrong with a method's map.

    Args:
        subject: The model and its batch.
        recordings: Of the batch, and of its last sample.
        method: The method.
        limit: How far the same number may be from itself.
        near: Of integrated gradients, the baseline as a share of the input.
    """
    options, alone = (
        {} if near is None else {"steps": STEPS, "baseline": near * x.tape.leaf.detach()} for x in recordings
    )
    whole, single = (
        recording.attribute(subject.target, method, **given)
        for recording, given in zip(recordings, (options, alone), strict=True)
    )
    scores = whole.scores
    if not scores.isfinite().all():
        return "wrong: not finite"
    if (scores == 0).flatten(1).all(1).any() and method not in MAY_BE_ZERO:
        return "wrong: all zero"
    if whole.method != method:
        return f"wrong: {whole.method} was taken"
    size = float(scores.abs().amax()) or 1.0
    if difference(scores[1:2], single.scores) > limit * size:
        return f"wrong: batch is not singles ({difference(scores[1:2], single.scores) / size:.0e})"
    again = lrptrain.attribute(subject.model, subject.inputs, subject.target, method, **options, **subject.options)
    if difference(again.scores, scores) > limit * size:
        return f"wrong: second call is not the first ({difference(again.scores, scores) / size:.0e})"
    if method == "input_x_gradient":
        return _product(subject, whole, limit)
    if near is not None:
        return _complete(subject, whole, near)
    if method in ("rollout", "raw_attention"):
        return _attention(subject, recordings[0], method, scores, limit)
    return OK


def _complete(subject: Subject, whole: Any, share: float) -> str:
    """The sum is what the explained number loses on the way to the baseline."""
    with torch.no_grad():
        before = subject.explained(subject.run())
        near = _near_baseline(subject, share)
        if near is None:
            return OK
        after = subject.explained(near)
    relevance = whole.scores if whole.input is None else whole.input.flatten(1)
    rounding = ROUNDING * (before.abs() + after.abs())  # a random model may hardly depend on its input
    missing = ((relevance.sum(1) - (before - after)).abs() - rounding).clamp(min=0)
    apart = (missing / relevance.abs().sum(1)).max()
    return OK if float(apart) <= KINKS else f"{INCOMPLETE} ({float(apart):.0e})"


def _near_baseline(subject: Subject, share: float) -> Any:
    inputs = subject.inputs
    if isinstance(inputs, Tensor):
        return subject.run(share * inputs)
    name, _ = explained_input(inputs, None)
    if inputs[name].is_floating_point():
        return subject.run({**inputs, name: share * inputs[name]})
    if not _word_tables(subject):
        return None
    with _changed_lookups(subject, lambda module, out: share * out):
        return subject.run()


def _word_tables(subject: Subject) -> list[nn.Embedding]:
    """All modules that look words up: a decoder may have one of its own, with the encoder's weight or another."""
    embedding = subject.embedding
    if not isinstance(embedding, nn.Embedding):
        return []
    tables = {name: module for name, module in subject.model.named_modules() if isinstance(module, nn.Embedding)}
    own_name = next((name.rpartition(".")[2] for name, module in tables.items() if module is embedding), "")
    return [
        module
        for name, module in tables.items()
        if module.weight is embedding.weight
        or (name.rpartition(".")[2] == own_name and module.num_embeddings == embedding.num_embeddings)
    ]


@contextmanager
def _changed_lookups(subject: Subject, change: Callable[[nn.Embedding, Tensor], Tensor]) -> Iterator[None]:
    handles = [
        module.register_forward_hook(lambda module, args, out: change(module, out)) for module in _word_tables(subject)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _leaf_or_copy(leaves: dict[int, Tensor], weight: Tensor, out: Tensor) -> Tensor:
    """What is looked up first becomes a leaf; what a decoder looks up later is made of it, behind a start token."""
    if id(weight) not in leaves:
        leaves[id(weight)] = out.detach().clone().requires_grad_()
        return leaves[id(weight)].clone()  # models write into it
    leaf = leaves[id(weight)]
    if out.shape != leaf.shape:
        return out
    return leaf.clone() if torch.equal(out, leaf) else torch.cat([out[:, :1], leaf[:, :-1]], 1)


def difference(a: Tensor, b: Tensor) -> float:
    """The largest; infinite where the shapes differ."""
    return float((a - b).abs().max()) if a.shape == b.shape else float("inf")


def _product(subject: Subject, whole: Any, limit: float) -> str:
    """Input times gradient with autograd alone."""
    expected = plain_product(subject)
    if expected is None or whole.input is None:
        return OK
    axis = next((i for i in range(1, expected.ndim) if _without(expected, i) == whole.input.shape), None)
    if whole.input.shape == expected.shape:
        summed = expected
    elif axis is None:
        return OK
    else:
        summed = expected.sum(axis)
    size = float(summed.abs().amax()) or 1.0
    apart = difference(summed, whole.input) / size
    return OK if apart <= limit else f"wrong: not input times gradient ({apart:.0e})"


def _without(x: Tensor, axis: int) -> torch.Size:
    return torch.Size([*x.shape[:axis], *x.shape[axis + 1 :]])


def plain_product(subject: Subject) -> Tensor | None:
    """Input times gradient of the explained number, by autograd; None where the input cannot be reached."""
    inputs = subject.inputs
    name = None if isinstance(inputs, Tensor) else explained_input(inputs, None)[0]
    tensor = inputs if name is None else inputs[name]
    leaves: dict[int, Tensor] = {}
    if tensor.is_floating_point():
        leaf = leaves[id(tensor)] = tensor.clone().requires_grad_()
        read = leaf.clone()  # models write into it
        output = subject.run(read if name is None else {**inputs, name: read})
    elif subject.embedding is not None:
        with _changed_lookups(subject, lambda module, out: _leaf_or_copy(leaves, module.weight, out)):
            output = subject.run()
    if not leaves:
        return None
    explained = subject.explained(output).sum()
    gradients = torch.autograd.grad(explained, list(leaves.values()), allow_unused=True)
    if any(gradient is None for gradient in gradients):
        return None
    product, *of_decoder = ((x * grad).detach() for x, grad in zip(leaves.values(), gradients, strict=True))
    for other in of_decoder:  # from a table of its own, one token later
        product[:, :-1] += other[:, 1:]
    return product


def _attention(subject: Subject, recording: Any, method: str, scores: Tensor, limit: float) -> str:
    """The model's own attention probabilities, and the row of the one token that is read from the last states."""
    recording = under_target(recording, subject.target)
    model = explicit_model(subject)
    maps, row = (own_attention(subject, model)) if model is not None else ([], None)
    if not maps:
        return OK
    limit = max(limit, bound(subject, model))
    found = recording.attention
    if len(found) > len(maps):  # some models leave out those of their head
        row = None
    elif len(found) < len(maps):
        return f"wrong: {len(found)} blocks of {len(maps)}"
    if all(bool((x == x[:, :1]).all()) for x in maps):  # some return the mean of the heads for each of them
        found = [x.mean(1, keepdim=True).expand_as(x) for x in found]
    apart = max(difference(a, b) for a, b in zip(found, maps, strict=False))
    if apart > limit:
        return f"wrong: not the model's attention ({apart:.0e})"
    if row is None:
        return OK
    expected = _rolled(maps, row) if method == "rollout" else _row(maps[-1].mean(1), row)
    mask = subject.inputs.get("attention_mask")
    expected = expected if mask is None else expected * mask
    if expected.shape != scores.shape:  # patches without their prefix tokens
        expected = expected[:, -scores.shape[1] :]
    apart = difference(expected, scores) / float(scores.abs().amax())
    return OK if apart <= limit else f"wrong: not {method} by hand ({apart:.0e})"


def under_target(recording: Any, target: Any) -> Any:
    """The recording as `attribute` walks it: of a model without logits, such as CLIP's, with the target behind it."""
    head, _, _ = as_head(target, None, recording.forward_pass.output)
    return recording.forward_pass.under(head) if head.functions else recording


def _row(x: Tensor, row: Tensor) -> Tensor:
    return x[torch.arange(len(x)), row]


def _rolled(maps: list[Tensor], row: Tensor) -> Tensor:
    product = None
    for block in maps:
        average = block.mean(1) + torch.eye(block.shape[-1], dtype=block.dtype)
        average = average / average.sum(-1, keepdim=True)
        product = average if product is None else average @ product
    assert product is not None
    return _row(product, row)


def explicit_model(subject: Subject) -> nn.Module | None:
    """The same model with attention in separate operations, where there is one."""
    try:
        return None if subject.explicit is None or not isinstance(subject.inputs, dict) else subject.explicit()
    except Exception:
        return None


def own_attention(subject: Subject, model: nn.Module) -> tuple[list[Tensor], Tensor | None]:
    """What a transformers model says that its attention was, and which token of its last states is read."""
    try:
        output = subject.run(model=model, output_attentions=True, output_hidden_states=True)
    except Exception:  # many models take neither
        return [], None
    maps = output.get("attentions") if isinstance(output, dict) else None
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return [], None  # those of one of the streams, if any
    if not maps or output.get("encoder_attentions") is not None or any(x is None for x in maps):
        return [], None
    square = all(
        isinstance(x, Tensor) and x.ndim == 4 and x.shape[-1] == x.shape[-2] == maps[0].shape[-1] for x in maps
    )
    # SqueezeBERT returns what the softmax reads.
    if not square or any(float((x.sum(-1) - 1).abs().max()) > SUM for x in maps):
        return [], None
    states = output.get("hidden_states")
    row = _read_token(subject, output, states[-1]) if states else None
    return [x.detach() for x in maps], row


def _read_token(subject: Subject, output: Any, states: Tensor) -> Tensor | None:
    """The one token per sample that the explained number depends on, or None."""
    try:
        (gradient,) = torch.autograd.grad(subject.explained(output).sum(), states, allow_unused=True)
    except RuntimeError:
        return None
    if gradient is None:
        return None
    read = gradient.abs().sum(-1) > 0
    return read.float().argmax(1) if bool((read.sum(1) == 1).all()) else None
