"""One guided step: listen to the user's forward pass, and add the guidance on it to the loss."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrptrain.batch import IMAGES, batch_length
from lrptrain.batch.logits import are_beyond, are_steps, features
from lrptrain.batch.rows import has_rows
from lrptrain.batch.task import ONE_LOGIT, STEPS
from lrptrain.guidance.conflict import compare_gradients, flat_gradient, synchronized_time
from lrptrain.guidance.evidence import contrasted
from lrptrain.guidance.guesses import loss_of_guesses
from lrptrain.guidance.losses import LossSum
from lrptrain.guidance.losses.map_loss import ROUNDING
from lrptrain.guidance.moved_images import check_in_place
from lrptrain.guidance.reduction import ReducedLosses, reduce_losses
from lrptrain.metrics.by_chance import Agreement
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.output.outputs import has_one_logit, logits_of
from lrptrain.relevance.passes.interception import InterceptedForward, checkpoints, intercepted
from lrptrain.relevance.tape.nodes import tensors_in
from lrptrain.relevance.tape.tape import Tape
from lrptrain.trainers.continuation import Continuation, way_out
from lrptrain.trainers.discover import bare_model, choice_of_parts, methods_of, parts, title_of, whole_batch
from lrptrain.trainers.held_back import note_teller
from lrptrain.trainers.processes import Processes

if TYPE_CHECKING:
    from lrptrain.guidance.guided_training import GuidedTraining

SWAP_DISTANCE = "swap_distance"


@dataclass(frozen=True)
class Progress:
    """Where a training stands; the same in all processes.

    Attributes:
        batch: The index of the batch.
        step: The optimizer steps so far.
        steps: The optimizer steps of the whole training; infinity where that is not known.
    """

    batch: int
    step: int
    steps: float = float("inf")


@dataclass
class _Heard:
    """What was heard of the user's step.

    Attributes:
        whole: Whether the model was given the batch as a whole, which is no tensor.
        parts: The parts of the model that were given the samples.
        output: What the model returned, where this process guides nothing.
        replay: What the backward pass must run in; None where it runs as ever.
    """

    whole: bool = False
    parts: dict[nn.Module, None] = field(default_factory=dict)
    output: Any = None
    replay: Tape | None = None


@dataclass
class _Seen:
    """What the model saw of the batch.

    Attributes:
        matched: Whether the evidence was brought to it.
        swapped: How many samples were swapped.
        evidence: The annotation of what was swapped; None for that of the batch.
    """

    matched: bool = False
    swapped: int = 0
    evidence: Tensor | None = None


class GuidedStep:
    """A step on a batch that is guided.

    The order, with a collective call (*) that all processes make:

    1. the user's own step inside of `listening`, in which the model's forward pass is intercepted, perhaps with swapped
       surroundings: the task's loss;
    2. `guided`: the losses of this process on that pass, and now and then the swap distance;
    3. their means over all processes (*);
    4. now and then the gradients of task and guidance beside each other (*), which sets the guidance's factor;
    5. the sum, which the trainer differentiates, clips and steps with as if it were the user's own loss, inside of
       `replaying`.

    Args:
        training: The guidance.
        model: The module that the step calls with the samples of the batch.
        trained: The module with all weights that the step may train.
        given: The batch, as the step gets it.
        batch: The batch in the contract's form, with its evidence; empty if no sample is guided.
        rows: The samples that are guided.
        progress: Where the training stands.
        processes: The processes that take part.

    Attributes:
        model: The module that is listened to.
        batch: The batch in the contract's form.
        values: What was measured, once the step is guided.
    """

    def __init__(
        self,
        training: "GuidedTraining",
        model: nn.Module,
        trained: nn.Module,
        given: Any,
        batch: dict[str, Any],
        rows: Tensor,
        progress: Progress,
        processes: Processes,
    ) -> None:
        self.values: dict[str, float] = {}
        self._training = training
        self.model = model
        self._trained = trained
        self._given = given
        self.batch = batch
        self._rows = rows
        self._progress = progress
        self._processes = processes
        # Training on swapped surroundings alone adds no loss: there is no gradient to compare.
        self._compares = bool(training.objective.weights) and training.strength.compares(progress.batch)
        device = next((weight.device for weight in trained.parameters()), torch.device("cpu"))
        self._watch = _Stopwatch(device, running=self._compares)
        self._forwards: list[InterceptedForward] = []
        self._heard = _Heard()
        self._seen = _Seen()
        self._continuation: Continuation | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the model during the user's step."""
        if not len(self._rows):  # another process may guide some, and then compare: two backward passes do not compile
            with eager() if self._compares else nullcontext(), self._noting_output():
                yield
            return
        samples = batch_length(self.batch)
        # Where blocks are computed again, one backward pass does so for all calls: all or none are explicit.
        guided = samples if checkpoints(self.model) else len(self._rows)
        model = unwrap(self.model)
        hooks: list[Any] = [model.register_forward_pre_hook(self._note_whole_batch, with_kwargs=True)]
        if not self._training.worked:
            self._continuation = Continuation(self.model, self._trained)
            note = self._note_part
            hooks += [part.register_forward_pre_hook(note, with_kwargs=True) for part in parts(model).values()]
        try:
            objective = self._training.objective
            change = self._with_swapped_samples if objective.swaps else None
            records = objective.records(guided, samples)
            explain = self._training.batches.explain
            with intercepted(self.model, samples, records, change, objective.keeps_maps, explain) as forwards:
                self._forwards = forwards
                yield
        finally:
            for hook in hooks:
                hook.remove()
            if self._continuation is not None:
                self._continuation.stop()

    def guided(self, task_loss: Tensor, share: float = 1.0) -> Tensor:
        """Return the loss of the task plus the guidance.

        Args:
            task_loss: The loss of the user's step, a mean over its samples.
            share: What the trainer leaves to be multiplied to a loss of one batch among several that it accumulates.

        Raises:
            ValueError: If this is the first guided batch, and its guidance cannot work.
        """
        self._watch.lap()
        note_teller(unwrap(self.model), self._training.strength.dominance)
        self._note_answers()
        losses = self._losses()
        self._watch.lap()
        swaps = self._training.objective.swaps and bool(self._forwards)
        samples = len(self._rows) if losses or swaps else 0
        if self._measures_swaps and samples:
            losses = {**losses, **self._swap_distance()}
        training = self._training
        reduced = self._reduce(losses, samples, task_loss)
        training.skipped += reduced.counts["skipped"]
        if SWAP_DISTANCE in reduced.means and self._progress.step:
            training.mention_distance(float(reduced.means[SWAP_DISTANCE]))
        # From here on "samples" and all means are those of all processes; this one may have guided none itself.
        weights = training.objective.weights
        terms = (weight * reduced.local[name] for name, weight in weights.items() if name in reduced.local)
        guidance = sum(terms, task_loss.new_zeros(()))
        if share != 1:
            guidance = share * guidance
        conflict: dict[str, float] = {}
        # The count is that of all processes, so that either all of them compare or none does.
        if self._compares and reduced.counts["samples"]:
            conflict = self._compare(task_loss, guidance)
        if training.strength.dominance.judges(self._progress.batch, training.strength.every_n_batches):
            self._judge_dominance(conflict.get("norm_ratio"))
        schedule = training.schedule(self._progress.step, self._progress.steps)
        scale = schedule * training.strength()
        total = scale * sum(weight * reduced.means[name] for name, weight in weights.items() if name in reduced.means)
        applied = {"total": total, "weight": schedule, "applied_weight": scale * training.strength.weight}
        counts = {"skipped": training.skipped, "left_out": training.left_out}
        self.values = {**reduced.means, **reduced.counts, **conflict, **applied, **counts}
        training.finish(self.values)
        return task_loss + scale * guidance

    def replaying(self) -> AbstractContextManager[None]:
        """Return what a backward pass through checkpointed blocks of a recorded step runs in.

        They are computed again as they were recorded, with explicit attention.
        """
        return nullcontext() if self.replay is None else self.replay.replaying()

    @property
    def samples(self) -> int:
        """How many samples of this process are to be guided."""
        return len(self._rows)

    @property
    def replay(self) -> Tape | None:
        """What the backward pass must run in, or None where it runs as ever."""
        return self._heard.replay

    def _mention_output(self) -> None:
        """Say once how one number per sample is read, where the user has not said what it is, and what may be features.

        Raises:
            ValueError: If there are several that are no logits of classes.
        """
        if self._training.task is None and has_one_logit(self._forwards[0].output):
            self._training.voice.say(ONE_LOGIT)
        logits = logits_of(self._forwards[0].output)
        if self._training.task is None and logits is not None and logits.ndim == 2 and are_steps(logits):
            raise ValueError(STEPS)
        labels = self.batch.get("label")
        if logits is None or labels is None or (logits.ndim, labels.ndim) != (2, 1):
            return
        if self._training.objective.weights and are_beyond(logits.detach().argmax(1).cpu(), labels.cpu()):
            self._training.voice.say(features(logits.shape[1], int(labels.max())))

    def _note_whole_batch(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        has_batch = any(value is self._given for value in (*args, *kwargs.values()))
        self._heard.whole |= has_batch and not isinstance(self._given, Tensor)

    def _note_part(self, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        samples = batch_length(self.batch)
        if any(isinstance(value, Tensor) and value.shape[:1] == (samples,) for value in (*args, *kwargs.values())):
            self._heard.parts[part] = None

    def _only_part(self) -> nn.Module | None:
        """Return the only part that was given the samples, if it has all weights: else its output may be no logits."""
        part = next(iter(self._heard.parts)) if len(self._heard.parts) == 1 else None
        return part if part is not None and {*unwrap(self.model).parameters()} == {*part.parameters()} else None

    def _losses(self) -> dict[str, LossSum]:
        """Return every loss of this process; none if it failed or guides no sample."""
        training = self._training
        forwards = self._forwards
        if not len(self._rows):
            return {}
        if forwards and forwards[0].failure is not None:
            if not training.worked:
                raise forwards[0].failure
            training.failed.note("recording the forward pass", forwards[0].failure)
            return {}
        try:
            if not forwards and not training.worked and (part := self._only_part()) is not None:
                training.listen_to(part)
                return {}
            if not forwards:
                raise ValueError(self._no_call())
            if self._continuation is not None:
                if training.objective.weights:  # a swap alone goes by the loss of the step
                    self._continuation.check("the training step")
                training.goes_on = bool(self._continuation.name)
            self._match_evidence(forwards[0].original)
            self._heard.replay = forwards[0].replay
            with forwards[0].autocast.restored():
                label = self.batch.get("label")
                losses = training.objective.losses(forwards[0], self._evidence, label, self._rows, self._generator())
            # The backward pass frees what it has used, which the recording would hold.
            forwards[0].let_go()
            if not training.worked:
                self._check_pooling(forwards[0])
                self._check_reach(losses)
                self._mention_output()
            training.worked = True
            return losses
        except Exception as error:
            if not training.worked:
                raise
            training.failed.note("computing the loss", error)
            return {}

    def _no_call(self) -> str:
        """Return what is wrong with a step that called the model with no batch of the right length."""
        if self._heard.whole:
            return whole_batch(unwrap(self.model))
        return (
            f"the training step never called {title_of(self.model)} with {self._asked_for()}the "
            f"{batch_length(self.batch)} samples of its batch: say which module it calls with them, "
            f"{choice_of_parts(self._root)}{'' if methods_of(self._root) else '; or ' + way_out(self._root)}"
        )

    @property
    def _root(self) -> nn.Module:
        return bare_model(self._trained, takes_shards=True)

    def _asked_for(self) -> str:
        explain = self._training.batches.explain
        return f"an argument {explain!r} of " if explain else ""

    def _with_swapped_samples(self, arguments: Mapping[str, Any], name: str) -> dict[str, Tensor]:
        """Return what the model is given in place of the input of the user's step.

        Args:
            arguments: The arguments of the user's step.
            name: The one that is explained.

        Raises:
            ValueError: If this is the first guided batch, and it cannot be swapped.
        """
        training = self._training
        objective = training.objective
        explained: Tensor = arguments[name]
        try:
            self._match_evidence(explained)
            # Bags of any size come one by one, and take from the one before; images and texts can do better.
            if len(explained) == 1 and explained.ndim != 3 and not training.worked:
                raise ValueError(
                    "swap takes something of other samples of the batch, and the first guided batch has one sample, so "
                    "that nothing would ever change: use larger batches"
                )
            # The swap distance of the same step swaps by the first stream: it is to measure other swaps than these.
            generator = self._generator(stream=1)
            share = (objective.swapped_share or 0.0) * training.schedule(self._progress.step, self._progress.steps)
            chosen = torch.zeros(len(explained), dtype=torch.bool)
            # Of the guided samples alone, and drawn on the CPU: other devices draw other numbers from the same seed.
            chosen[self._rows.cpu()] = torch.rand(len(self._rows), generator=generator) < share
            swapped = objective.swap(explained, self.batch["evidence"], generator, arguments, chosen)
        except Exception as error:
            if not training.worked:
                raise
            training.failed.note("swapping samples", error)
            return {}
        self._seen.swapped = int(swapped.rows.sum())
        self._seen.evidence = swapped.annotation
        return {name: swapped.explained, **swapped.arguments}

    @property
    def _evidence(self) -> Tensor:
        """The annotation of what the model was given: that of texts moves with their tokens."""
        return self.batch["evidence"] if self._seen.evidence is None else self._seen.evidence

    @property
    def _measures_swaps(self) -> bool:
        return self._training.strength.measures_swaps(self._progress.batch)

    def _match_evidence(self, explained: Tensor) -> None:
        """Bring the evidence to the input of the user's step, once; reject a step that leaves the evidence behind."""
        # With swaps it is called within the step, before the model runs, and once more when the losses are computed.
        if not self._seen.matched:
            if self.batch.keys() & {"mask", "boxes"}:
                check_in_place(self.batch, explained, type(self.model).__name__, self._training.voice)
            self._resize_evidence(explained)
            self._seen.matched = True

    def _resize_evidence(self, explained: Tensor) -> None:
        """Bring the evidence to the size in which the step gives the model its images."""
        image = next((self.batch[name] for name in IMAGES if name in self.batch), None)
        evidence = self.batch["evidence"]
        if image is None or image.ndim != 4 or explained.ndim != 4 or evidence.ndim != 3:
            return
        size = explained.shape[2:]
        if size != image.shape[2:] and evidence.shape[1:] == image.shape[2:]:
            resized = F.interpolate(evidence[:, None].float(), size, mode="nearest-exact")[:, 0]
            self.batch["evidence"] = resized.to(evidence.dtype)

    def _check_pooling(self, forward: InterceptedForward) -> None:
        """Reject rewritten texts where the step goes on with what the model says of every token.

        Raises:
            ValueError: With the way out.
        """
        if not (self._training.objective.swaps and "input_ids" in self.batch):
            return
        try:
            with self._training.objective.task.reading():
                logits = forward.logits()
        except Exception as error:
            raise ValueError(
                f"{type(self.model).__name__} gives back no logits of classes, and the step goes on by the attention "
                f"mask of the texts as they were: say which module does all of it, {choice_of_parts(self.model)}"
            ) from error
        del logits

    def _check_reach(self, losses: Mapping[str, LossSum]) -> None:
        """Reject a loss whose gradient reaches no trained weight, and annotations that give no loss a gradient.

        Args:
            losses: The losses of the first guided batch.
        """
        # Training on swapped surroundings alone asks for no gradient of a part of the loss.
        if losses and _reentrant(self._forwards[0]):
            raise ValueError(
                f"{type(self.model).__name__} computes its blocks again by a reentrant checkpoint, through which torch "
                "gives no gradient of a part of the loss: switch to use_reentrant=False (in transformers, "
                "gradient_checkpointing_kwargs={'use_reentrant': False})"
            )
        weights = _trained_weights(self._trained)
        # A backward pass through checkpointed blocks computes them again: as recorded, with explicit attention.
        with self.replaying():
            gradients = {name: flat_gradient(loss.total, weights) for name, loss in losses.items()}
        objective = self._training.objective
        lost = [name for name, gradient in gradients.items() if gradient is None]
        if lost:
            method = objective.method or "the default method"
            raise ValueError(
                f"{', '.join(lost)} reaches no weight that is trained: are all of them frozen, or does {method} with "
                f"first_order={objective.first_order} leave no way to them?"
            )
        if not objective.needs_annotation:
            return  # there is no annotation that could mark all or nothing
        # Rounding leaves a gradient where there is none.
        idle = all(gradient is None or float(gradient.norm()) <= ROUNDING for gradient in gradients.values())
        annotation = self.batch["evidence"][self._rows.to(self.batch["evidence"].device)]
        is_bag = len(annotation) == 1  # of which one may have no marked row, or no other
        if idle and not (is_bag or self._training.sparse or bool(contrasted(annotation).any())):
            marks = "all" if bool((annotation == 1).any()) else "nothing"
            effect = "has no gradient (guidance/cosine is nan)" if gradients else "has nothing to swap"
            raise ValueError(
                f"the guidance {effect}: the annotations of the first guided batch "
                f"mark {marks} of every sample. 1 is evidence and 0 is not (for masks of 0 and 255 pass `mask > 0`); "
                "if later batches mark more, say so with sparse=True"
            )

    def _swap_distance(self) -> dict[str, LossSum]:
        training = self._training
        if training.goes_on or ("input_ids" in self.batch and not training.objective.swap.takes_mask):
            return {}  # what is returned is no answer; or texts become longer, and the model cannot be told so
        with training.failed.caught("measuring the swap distance"), self._forwards[0].autocast.restored():
            distance = training.objective.swap_distance(
                self._forwards[0], self.batch["evidence"], self._rows, self._generator()
            )
            return {SWAP_DISTANCE: distance}
        return {}

    def _reduce(self, losses: Mapping[str, LossSum], samples: int, task_loss: Tensor) -> ReducedLosses:
        """Take means over all processes, with one sum over them."""
        # The same names in all processes, also in one that guides no sample: the sum is over rows of one length.
        names = [*self._training.objective.weights, *([SWAP_DISTANCE] if self._measures_swaps else [])]
        counts = {"samples": samples, "failures": self._training.failures}
        if self._training.objective.swaps:
            counts["swapped"] = self._seen.swapped
        over_all = partial(self._processes.reduced, operation="sum")
        return reduce_losses(losses, names, counts, task_loss, self._processes.size, over_all)

    def _compare(self, task_loss: Tensor, guidance: Tensor) -> dict[str, float]:
        """Compare the gradients of task and guidance, and update what scales the guidance."""
        # `guidance` is without schedule and factor here, so that the norms are those at a factor of 1.
        mean = partial(self._processes.reduced, operation="mean")
        training = self._training
        bounded = training.strength.bounded
        guesses = self._loss_of_guesses(task_loss) if bounded else None
        with self.replaying():
            weights = _trained_weights(self._trained)
            conflict = compare_gradients(task_loss, guidance, weights, mean, guesses, with_guesses=bounded)
        # Of bags one by one, ten may well be without a mark. All processes must come to the same.
        are_bags = has_rows(self.batch) and batch_length(self.batch) == 1
        excused = training.sparse or bool(training.skipped) or are_bags
        training.strength.check_gradient(conflict.guidance_norm, self._progress.step, excused)
        training.strength.update(conflict.task_norm, conflict.guidance_norm, conflict.guess_norm)
        task_seconds, guidance_seconds = self._watch.seconds
        task_seconds += conflict.task_seconds
        guidance_seconds += conflict.guidance_seconds
        cost = guidance_seconds / max(task_seconds, 1e-9)
        values = {"cosine": conflict.cosine, "norm_ratio": conflict.norm_ratio, "cost": cost}
        return values | ({"guess_ratio": conflict.guess_ratio} if bounded else {})

    def _loss_of_guesses(self, task_loss: Tensor) -> Tensor | None:
        output = self._forwards[0].output if self._forwards else self._heard.output
        training = self._training
        with training.failed.caught("measuring what guesses would do"), training.objective.task.reading():
            return loss_of_guesses(task_loss, output, self.batch.get("label"), training.objective.task)
        return None

    @contextmanager
    def _noting_output(self) -> Iterator[None]:
        """Keep what the model returns in a step of this process that guides nothing, if another one compares."""

        def note(module: nn.Module, args: Any, output: Any) -> None:
            self._heard.output = output if self._heard.output is None else self._heard.output

        hook = unwrap(self.model).register_forward_hook(note) if self._compares else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    def _note_answers(self) -> None:
        """Keep what the model answered, where a weight of the user's own might keep it from learning."""
        labels = self.batch.get("label")
        if not self._training.strength.dominance.watches or labels is None or not self._forwards:
            return
        # It is watched over for the user's sake: what cannot be read is no failure of the guidance.
        task = self._training.objective.task
        with suppress(Exception), torch.no_grad(), task.reading():
            answers = task.by_answer(self._forwards[0].logits().detach()).argmax(1)
            self._training.strength.dominance.note(answers, labels.flatten().to(answers.device))

    def _judge_dominance(self, norm_ratio: float | None) -> None:
        """Say so once, in all places, if the guidance keeps the task from being learned, or makes it forgotten.

        Args:
            norm_ratio: That of the gradients at a factor of 1; None where they were not compared.
        """
        training = self._training
        dominance = training.strength.dominance
        local = torch.tensor(dominance.agreement(), device=self._watch.device)
        agreement = Agreement(*self._processes.reduced(local, operation="sum").tolist())
        scale = training.schedule(self._progress.step, self._progress.steps) * training.strength()
        ratio = None if norm_ratio is None else scale * norm_ratio
        if dominance.update(agreement, ratio, self._progress.step == 0):
            training.voice.say(dominance.text)

    def _generator(self, stream: int = 0) -> torch.Generator:
        """Return random numbers that depend on seed, step and process alone, so that a resumed run draws the same.

        Args:
            stream: Tells draws of one step apart that must not repeat each other.
        """
        # Python salts the hashes of strings, not those of integers: a resumed run computes the same.
        streams = (stream,) if stream else ()
        seed = hash((self._training.batches.seed, self._progress.step, self._processes.rank, *streams)) % 2**63
        return torch.Generator().manual_seed(seed)


class _Stopwatch:
    """Measures seconds between laps on a device; one that does not run never waits for the device."""

    def __init__(self, device: torch.device, running: bool) -> None:
        self.device = device
        self.running = running
        self.times: list[float] = []
        self.lap()

    def lap(self) -> None:
        """Note the time."""
        if self.running:
            self.times.append(synchronized_time(self.device))

    @property
    def seconds(self) -> list[float]:
        """The seconds of every lap."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


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


def _trained_weights(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
