"""What is checked until a first batch was guided: that the guidance can work as the user's step is written."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from lrptrain.batch import batch_length
from lrptrain.batch.logits import are_beyond, are_steps, features
from lrptrain.batch.task import ONE_LOGIT, STEPS
from lrptrain.guidance.annotated_batches import AnnotatedBatch
from lrptrain.guidance.evidence import contrasted
from lrptrain.guidance.losses import LossSum
from lrptrain.guidance.losses.on_maps import ROUNDING
from lrptrain.guidance.state import GuidanceState
from lrptrain.guidance.strength import flat_gradient
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.output.outputs import has_one_logit, logits_of
from lrptrain.relevance.passes.interception import InterceptedForward
from lrptrain.relevance.tape.nodes import tensors_in
from lrptrain.trainers.continuation import Continuation, way_out
from lrptrain.trainers.discover import bare_model, choice_of_parts, methods_of, parts, title_of, whole_batch


class FirstStep:
    """Listens to how a step calls the model and its parts, and rejects what no guidance can work with."""

    def __init__(self, state: GuidanceState, model: nn.Module, trained: nn.Module, batch: AnnotatedBatch) -> None:
        self._state = state
        self._model = model
        self._trained = trained
        self._batch = batch
        self._takes_whole = False  # whether the model was given the batch as a whole, which is no tensor
        self._parts: dict[nn.Module, None] = {}  # the parts of the model that were given the samples
        self._continuation = Continuation(model, trained)
        self._hooks = [unwrap(model).register_forward_pre_hook(self._note_whole_batch, with_kwargs=True)]
        for part in parts(unwrap(model)).values():
            self._hooks.append(part.register_forward_pre_hook(self._note_part, with_kwargs=True))

    def stop(self) -> None:
        """Listen no longer."""
        for hook in self._hooks:
            hook.remove()
        self._continuation.stop()

    def only_part(self) -> nn.Module | None:
        """Return the only part that was given the samples, if it has all weights: else its output may be no logits."""
        part = next(iter(self._parts)) if len(self._parts) == 1 else None
        return part if part is not None and {*unwrap(self._model).parameters()} == {*part.parameters()} else None

    def no_call(self) -> str:
        """Return what is wrong with a step that called the model with no batch of the right length."""
        if self._takes_whole:
            return whole_batch(unwrap(self._model))
        explain = self._state.options.explain
        argument = f"an argument {explain!r} of " if explain else ""
        root = bare_model(self._trained, takes_shards=True)
        return (
            f"the training step never called {title_of(self._model)} with {argument}the "
            f"{batch_length(self._batch.columns)} samples of its batch: say which module it calls with them, "
            f"{choice_of_parts(root)}{'' if methods_of(root) else '; or ' + way_out(root)}"
        )

    def check_continuation(self) -> bool:
        """Return whether the step continues with what the model returns."""
        if self._state.objective.weights:
            self._continuation.check("the training step")
        return bool(self._continuation.name)

    def check(
        self, forward: InterceptedForward, losses: Mapping[str, LossSum], replaying: AbstractContextManager[None]
    ) -> None:
        """Reject what the first guided batch shows to be wrong, and mention how its output is understood."""
        self._check_pooling(forward)
        # Training on swapped surroundings alone asks for no gradient of a part of the loss.
        if losses and _reentrant(forward):
            raise ValueError(
                f"{type(self._model).__name__} computes its blocks again by a reentrant checkpoint, through which "
                "torch gives no gradient of a part of the loss: switch to use_reentrant=False (in transformers, "
                "gradient_checkpointing_kwargs={'use_reentrant': False})"
            )
        weights = trained_weights(self._trained)
        with replaying:
            self._check_reach({name: flat_gradient(loss.total, weights) for name, loss in losses.items()})
        self._mention_output(forward.output)

    def _check_pooling(self, forward: InterceptedForward) -> None:
        """Reject rewritten texts where the step continues with what the model says of every token."""
        if not (self._state.objective.swaps and "input_ids" in self._batch.columns):
            return
        try:
            with self._state.objective.task.reading():
                logits = forward.logits()
        except Exception as error:
            raise ValueError(
                f"{type(self._model).__name__} gives back no logits of classes, and the step continues by the "
                "attention mask of the texts as they were: say which module does all of it, "
                f"{choice_of_parts(self._model)}"
            ) from error
        del logits

    def _check_reach(self, gradients: Mapping[str, Tensor | None]) -> None:
        """Reject a loss whose gradient reaches no trained weight, and annotations that give no loss a gradient."""
        lost = [name for name, gradient in gradients.items() if gradient is None]
        if lost:
            method = self._state.objective.maps.method or "the default method"
            raise ValueError(
                f"{', '.join(lost)} reaches no weight that is trained: are all of them frozen, or does {method} leave "
                "no way to them?"
            )
        if not self._state.objective.needs_annotation:
            return  # there is no annotation that could mark all or nothing
        # Rounding leaves a gradient where there is none.
        idle = all(gradient is None or float(gradient.norm()) <= ROUNDING for gradient in gradients.values())
        annotation = self._batch.columns["evidence"]
        annotation = annotation[self._batch.guided.to(annotation.device)]
        is_bag = len(annotation) == 1  # of which one may have no marked row, or no other
        if idle and not (is_bag or self._state.sparse or bool(contrasted(annotation).any())):
            marks = "all" if bool((annotation == 1).any()) else "nothing"
            effect = "has no gradient (guidance/norm_ratio is 0)" if gradients else "has nothing to swap"
            raise ValueError(
                f"the guidance {effect}: the annotations of the first guided batch "
                f"mark {marks} of every sample. 1 is evidence and 0 is not (for masks of 0 and 255 pass `mask > 0`); "
                "if later batches mark more, say so with sparse=True"
            )

    def _mention_output(self, output: Any) -> None:
        """Say what one number per sample is taken for, where the user has not said it, and what may be features."""
        is_told = self._state.options.task is not None
        if not is_told and has_one_logit(output):
            self._state.messages.inform(ONE_LOGIT)
        logits = logits_of(output)
        if not is_told and logits is not None and logits.ndim == 2 and are_steps(logits):
            raise ValueError(STEPS)
        labels = self._batch.columns.get("label")
        if logits is None or labels is None or (logits.ndim, labels.ndim) != (2, 1):
            return
        if self._state.objective.weights and are_beyond(logits.detach().argmax(1).cpu(), labels.cpu()):
            self._state.messages.inform(features(logits.shape[1], int(labels.max())))

    def _note_whole_batch(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = self._batch.given
        self._takes_whole |= not isinstance(given, Tensor) and any(x is given for x in (*args, *kwargs.values()))

    def _note_part(self, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        samples = (batch_length(self._batch.columns),)
        if any(isinstance(value, Tensor) and value.shape[:1] == samples for value in (*args, *kwargs.values())):
            self._parts[part] = None


def trained_weights(module: nn.Module) -> list[nn.Parameter]:
    """Return the weights that are trained."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _reentrant(forward: InterceptedForward) -> bool:
    """Whether the graph of a forward pass has blocks that a reentrant checkpoint computes again."""
    waiting = [x.grad_fn for x in tensors_in(forward.output) if x.grad_fn is not None]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name() == "CheckpointFunctionBackward":
            return True
        waiting += [before for before, _ in node.next_functions if before is not None]
    return False
