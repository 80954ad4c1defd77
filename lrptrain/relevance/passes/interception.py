"""Listen to a model while somebody else calls it: in a training step, say, which knows nothing of relevance."""

import copy
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.relevance.attribute import as_recording
from lrptrain.relevance.model.one_sample import OfOneSample, bare_arguments
from lrptrain.relevance.model.precision import AutocastState, autocast_state
from lrptrain.relevance.model.preserve import preserved, unwrap
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.output.heads import Head
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.passes.forward_pass import forward_pass
from lrptrain.relevance.passes.recording import Recording, explained_input, forward_on_tape, run_on_tape
from lrptrain.relevance.tape.ordered_gradients import OrderedGradients
from lrptrain.relevance.tape.tape import Tape

Change = Callable[[Mapping[str, Any], str], Mapping[str, Tensor]]


@dataclass(eq=False)
class InterceptedForward:
    """One call of a model that somebody else made, with its arguments and output.

    Attributes:
        model: The module, unwrapped.
        arguments: The arguments of the call, by name.
        name: The name of the explained argument.
        output: The output of the model, with its graph.
        originals: The arguments as the caller gave them, where the model was given others.
        tape: The recorded operations, or None; also once they were let go.
        replay: What a backward pass through checkpointed blocks, recorded or not any more, runs in; None where there is
            no recording.
        failure: The error that prevented the recording, or None.
        autocast: The precision in which the caller ran the model.
        keeps_maps: Whether recordings hold the attention maps in their graph; see `forward_on_tape`.
    """

    model: nn.Module
    arguments: Mapping[str, Any]
    name: str
    output: Any
    originals: Mapping[str, Any]
    tape: Tape | None = None
    failure: Exception | None = None
    autocast: AutocastState = field(default_factory=autocast_state)
    keeps_maps: bool = True
    replay: Tape | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.replay = None if self.tape is None else self.tape.for_replay()

    def let_go(self) -> None:
        """Forget the recorded operations, once all is computed that needs them: only what the graph needs stays."""
        self.tape = None

    @property
    def explained(self) -> Tensor:
        """The image, the embeddings or the token ids."""
        tensor: Tensor = self.arguments[self.name]
        return tensor

    @property
    def original(self) -> Tensor:
        """The explained input as the caller gave it."""
        tensor: Tensor = self.originals[self.name]
        return tensor

    @property
    def samples(self) -> int:
        """Number of samples in the batch."""
        return self.explained.shape[0]

    def logits(self) -> Float[Tensor, "batch classes"]:
        """Return the logits of the output, with their graph; see `read_logits` for errors."""
        return read_logits(self.output, self.samples)

    def recording(self, rows: Int[Tensor, " rows"] | None = None, full_precision: bool = False) -> Recording:
        """The recording of this call; or, of some samples or where there was none, of a new one."""
        if rows is None and self.tape is not None:
            return as_recording(self.tape, self.output, self.model, self.arguments, explain=self.name)
        arguments = self.chosen(rows)
        with preserved(self.model):
            if full_precision:
                return forward_pass(self.model, arguments, self.name, full_precision=True).under(Head())
            tape, output = run_on_tape(self.model, arguments, explain=self.name, keeps_maps=self.keeps_maps)
        return as_recording(tape, output, self.model, arguments, explain=self.name)

    def again(
        self,
        explained: Tensor,
        rows: Int[Tensor, " rows"] | None = None,
        evaluating: bool = False,
        others: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Float[Tensor, "rows classes"]:
        """Logits, with their graph, of a call with another input; buffers and random state are left as they are."""
        replayed = self.replay if checkpoints(self.model) else None  # one backward pass computes both calls again
        mode = replayed.replaying() if replayed else OrderedGradients()
        with preserved(self.model), mode, eager():
            if evaluating:
                self.model.eval()
            output = self.model(**{**self.chosen(rows), **others, self.name: explained})
        return read_logits(output, len(explained))

    def chosen(self, rows: Int[Tensor, " rows"] | None) -> dict[str, Any]:
        """The arguments of some samples."""
        if rows is None:
            return dict(self.arguments)
        mine = {name for name, x in self.arguments.items() if isinstance(x, Tensor) and x.shape[:1] == (self.samples,)}
        return {name: x[rows.to(x.device)] if name in mine else x for name, x in self.arguments.items()}


@contextmanager
def intercepted(
    model: nn.Module,
    samples: int,
    record: bool,
    change: Change | None = None,
    keeps_maps: bool = True,
    explain: str | None = None,
) -> Iterator[list[InterceptedForward]]:
    """Listen to the first call of a model with a batch of the given size.

    Later calls, those of another size and those without gradients go by. The model is run as it stands, once, with the
    caller's arguments.

    Args:
        model: Compiled and wrapped models are unwrapped; what is compiled runs eagerly inside.
        samples: Size of the batch.
        record: Also record the call on a tape. If that fails, the model is run once more, without one.
        change: Takes the caller's arguments by name, and the name of the explained one, and returns those of them that
            the model is given others for; None for no change.
        keeps_maps: Whether recordings hold the attention maps in their graph; see `forward_on_tape`.
        explain: The argument that is explained; calls without it go by. None for the image, the embeddings or the ids.

    Yields:
        The call, once it was made.
    """
    model = unwrap(model)
    listener = _Listener(model, samples, record, change, keeps_maps, explain)
    vars(model)["forward"] = listener
    try:
        with eager():
            yield listener.calls
    finally:
        listener.leave()


@dataclass(eq=False)
class _Listener:
    """Stands in the place of a model's forward; the calls of other threads go by."""

    model: nn.Module
    samples: int
    record: bool
    change: Change | None
    keeps_maps: bool
    explain: str | None

    def __post_init__(self) -> None:
        # A block that is computed again could not tell which attention was written out, as that of learned queries is.
        self.keeps_maps = self.keeps_maps or checkpoints(self.model)
        self.calls: list[InterceptedForward] = []
        self.listens = True
        self.thread = threading.get_ident()
        self.beneath = vars(self.model).get("forward")  # of the instance: a patch, or another thread's listener
        self.forward = self.model.forward
        # Where two listen, such as two guidances, the one on top learns names from the model's own forward.
        self.signed: Callable[..., Any] = self.beneath.signed if isinstance(self.beneath, _Listener) else self.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.listens or threading.get_ident() != self.thread:
            return self.forward(*args, **kwargs)
        arguments = _named(self.signed, args, kwargs)
        name = _explained_name(arguments, self.explain)
        if self.calls or name is None or not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        # A batch of one may be one bag without a batch axis.
        bare = bare_arguments(arguments, name) if self.samples == 1 else ()
        as_batch = OfOneSample(self.model, bare if arguments[name].shape[:1] != (1,) else ())
        if not as_batch.bare and arguments[name].shape[:1] != (self.samples,):
            return self.forward(*args, **kwargs)
        originals = arguments = as_batch.with_axis(arguments)
        if self.change is not None:
            # All by name from here on: an argument that stayed among `args` would be passed twice.
            arguments = {**arguments, **self.change(arguments, name)}
            args = ()
            kwargs = as_batch.without_axis(arguments)
        tape, both, failure = self._recorded(arguments, name, as_batch) if self.record else (None, None, None)
        if both is None:
            output = self.forward(*args, **kwargs)
            both = (output, as_batch.of_batch(output))
        output, of_batch = both
        model = as_batch if as_batch.bare else self.model
        self.calls.append(
            InterceptedForward(model, arguments, name, of_batch, originals, tape, failure, keeps_maps=self.keeps_maps)
        )
        return output

    def _recorded(
        self, arguments: Mapping[str, Any], name: str, as_batch: OfOneSample
    ) -> tuple[Tape | None, tuple[Any, Any] | None, Exception | None]:
        """Return the tape, the output as the caller gets it and as that of a batch, and what failed."""
        outputs = []

        def run(explained: Tensor) -> Any:
            outputs.append(self.forward(**as_batch.without_axis({**arguments, name: explained})))
            return as_batch.of_batch(outputs[-1])

        others = {key: x for key, x in arguments.items() if key != name}
        try:
            # The arguments are those of the caller: a graph that leads into the input continues through the tape.
            tape, of_batch = forward_on_tape(
                self.model, run, arguments[name], others=others, keeps_maps=self.keeps_maps
            )
        except Exception as error:
            return None, None, error.with_traceback(None)  # its frames hold the graph
        return tape, (outputs[-1], of_batch), None

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        """A copy of the model, for an average of its weights, say, has its own forward and no listener."""
        copied: Callable[..., Any] = copy.deepcopy(self.forward, memo)
        return copied

    def leave(self) -> None:
        """Give the forward back, unless another thread listens on top; it does so when it leaves."""
        self.listens = False
        forward = vars(self.model).get("forward")
        while isinstance(forward, _Listener) and not forward.listens:
            forward = forward.beneath
        if forward is None:
            vars(self.model).pop("forward", None)
        else:
            vars(self.model)["forward"] = forward


def checkpoints(model: nn.Module) -> bool:
    """Whether blocks are computed again in the backward pass, by the flags of timm and transformers."""
    flags = ("grad_checkpointing", "gradient_checkpointing")
    return any(getattr(module, flag, False) is True for module in model.modules() for flag in flags)


def _named(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name; those that the signature does not name cannot be told, and then there are none."""
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    kinds = inspect.signature(forward).parameters
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = kinds[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            return {}
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return named


def _explained_name(arguments: Mapping[str, Any], explain: str | None) -> str | None:
    tensors = {name for name, x in arguments.items() if isinstance(x, Tensor)}
    if not tensors or (explain is not None and explain not in tensors):
        return None
    return explained_input(arguments, explain)[0]
