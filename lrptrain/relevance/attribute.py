"""The entry points: relevance of a model's input for a class, or for several from one forward pass."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from lrptrain.relevance import methods as _methods  # noqa: F401  (registers them)
from lrptrain.relevance.default import check_method
from lrptrain.relevance.fast.switch import is_plain
from lrptrain.relevance.fast.walk import walked
from lrptrain.relevance.model.arguments import as_arguments, as_batch_of_one, telling_of_inputs
from lrptrain.relevance.model.one_sample import OfOneSample, bare_arguments
from lrptrain.relevance.model.precision import autocast_state, has_half_weights
from lrptrain.relevance.model.preserve import preserved, unwrap
from lrptrain.relevance.model.recordable import gives_answers_only, warn_of_train_mode
from lrptrain.relevance.output.heads import Head, as_head
from lrptrain.relevance.output.logit_view import LogitView, one_logit_as
from lrptrain.relevance.output.outputs import has_one_logit, is_sigmoid, logits_of, read_logits
from lrptrain.relevance.passes.forward_pass import ForwardPass, forward_pass
from lrptrain.relevance.passes.plain_pass import NeedsTape, PlainPass, explained_once
from lrptrain.relevance.passes.recording import Inputs, Recording, Target, explained_input
from lrptrain.relevance.propagation.composite import Rules
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.sharding.whole_weights import check_graph
from lrptrain.relevance.swapped.calls import NotingTape
from lrptrain.relevance.swapped.plan import Plan
from lrptrain.relevance.swapped.plans import PLANNED, Asked, Planned, agree, planned
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.targets import BinaryClassifierOutputTarget
from lrptrain.relevance.types import NonFiniteError, Relevance, TokenLayout, UnsupportedModelError


def record(
    model: nn.Module,
    inputs: Inputs | str | Sequence[Any] | np.ndarray,
    *,
    explain: str | None = None,
    layout: TokenLayout | None = None,
    tokenizer: Any = None,
    differentiable: bool = True,
) -> Recording:
    """Run a model once, for several maps: `record(model, images).attribute(target=3, method="attnlrp")`.

    Arguments and errors are those of `lrptrain.attribute`, but `explain` is one argument: a forward pass is recorded
    for one. Where the model returns no logits, the maps need a target that says what is read.

    Examples:
        >>> import torch, lrptrain
        >>> recording = lrptrain.record(torch.nn.Linear(2, 3), torch.randn(4, 2))
        >>> [recording.attribute(target, "attnlrp").scores.shape[0] for target in (0, 2)]
        [4, 4]

    Args:
        model: See `lrptrain.attribute`.
        inputs: See `lrptrain.attribute`.
        explain: See `lrptrain.attribute`.
        layout: See `lrptrain.attribute`.
        tokenizer: See `lrptrain.attribute`.
        differentiable: Whether to keep the graph of the weights, which maps with a graph (`create_graph`) need; without
            it, a recording takes less time and memory.
    """
    model = unwrap(model)
    arguments = as_arguments(model, inputs, tokenizer)
    with walked(model), telling_of_inputs(model, arguments), preserved(model):
        passed = forward_pass(model, arguments, explain, layout, differentiable=differentiable)
        return replace(passed, tokenizer=tokenizer).logits()


@overload
def attribute(
    model: nn.Module,
    inputs: Inputs | str | Sequence[Any] | np.ndarray,
    target: Target = ...,
    method: str | None = ...,
    *,
    explain: str | None = ...,
    **options: Any,
) -> Relevance: ...


@overload
def attribute(
    model: nn.Module,
    inputs: Inputs | str | Sequence[Any] | np.ndarray,
    target: Target = ...,
    method: str | None = ...,
    *,
    explain: tuple[str, ...],
    **options: Any,
) -> dict[str, Relevance]: ...


@overload
def attribute(
    model: nn.Module,
    inputs: Inputs | str | Sequence[Any] | np.ndarray,
    target: Target = ...,
    method: list[str] | tuple[str, ...] = ...,
    *,
    explain: str | None = ...,
    **options: Any,
) -> dict[str, Relevance]: ...


def attribute(
    model: nn.Module,
    inputs: Inputs | str | Sequence[Any] | np.ndarray,
    target: Target = None,
    method: str | list[str] | tuple[str, ...] | None = None,
    *,
    other: Target = None,
    explain: str | tuple[str, ...] | None = None,
    layout: TokenLayout | None = None,
    tokenizer: Any = None,
    composite: Rules | str | None = None,
    create_graph: bool = False,
    first_order: bool = False,
    **options: Any,
) -> Relevance | dict[str, Relevance]:
    """Compute the relevance of every patch or token for one class of every sample.

    The model is run as it stands (with a `RelevanceWarning` in training mode), and left as it was. A batch of N equals
    N batches of one. Autocast is switched off. Where the weights are in half precision, methods that would amplify
    the rounding run a float32 copy. Of a sharded model all processes must call this at the same time.

    Examples:
        >>> import torch, lrptrain
        >>> model = torch.nn.Linear(2, 3, bias=False)
        >>> relevance = lrptrain.attribute(model, torch.tensor([[1.0, 2.0]]), target=1)
        >>> relevance.method, tuple(relevance.scores.shape)
        ('attnlrp', (1, 2))
        >>> torch.allclose(relevance.scores.sum(1), relevance.logits[:, 1])
        True

    Args:
        model: Any module whose forward returns logits `[batch, classes]`, one logit per sample (`[batch]`), or an
            object with `.logits`; with a target that is a function, or a tuple, anything.
        inputs: Images `[batch, channels, height, width]` or token ids `[batch, tokens]`, or a dict of keyword arguments
            with one of them (`pixel_values`, `image`, `input_ids`, `inputs_embeds`) and, for texts, the
            `attention_mask` (1 token, 0 padding). Or one image, or texts, or pairs of texts, for the `tokenizer`.
        target: What is explained. A class, for all or one per sample: its number, its name in `config.label2id`, or
            None for the predicted one (a single logit per sample is explained itself). A tuple, for logits of more
            axes: `(token, class)`. Or a function of the output that returns `[batch]`, such as those of
            `lrptrain.targets`; of both, `Relevance.logits` `[batch, 1]` holds the numbers.
        method: One of `lrptrain.methods()`. By default the first of `lrptrain.relevance.default.DEFAULT_METHODS` that
            supports the model, with a `RelevanceWarning` if it is not the very first. A method that is named is never
            replaced. A list of names gives a dict, from one forward pass.
        other: A class (or another tuple or function): the difference of the two logits is explained.
        explain: The name of the explained argument, where the model takes several: "pixel_values" or "input_ids". A
            tuple of names gives a dict, by one forward pass each.
        layout: Where the content tokens stand, for models in which it cannot be found.
        tokenizer: Cuts texts, and names their tokens where the map is shown: one of transformers.
        composite: Rules that count before the method's own: a `lrptrain.Composite`, or a mapping from operations to
            rules, `{"diff": lrptrain.rules.epsilon()}`. For `lrp` also the name of its own composite, "alpha_beta",
            "split_alpha_beta" or "chefer".
        create_graph: Keep the graph, so that a loss on the scores reaches the model's parameters; for the methods that
            are differentiable.
        first_order: Take gradients inside such a map as constants, as RobustViT does, which is cheaper.
        **options: Options of the method, of the default where none is named.

    Raises:
        ValueError: If the batch is empty, a target is out of range or of the wrong shape, or a pattern of the
            composite's name map matches no module.
        NonFiniteError: If the logits are NaN, or the relevance, without `create_graph`, is NaN or infinite.
        UnsupportedModelError: If the output is not `[batch, classes]`, or the model lacks what the method needs.
        UnsupportedMethodError: If the method is unknown, does not take an option, or does not exist for this model.
        UnsupportedOperationError: If relevance reaches an operation without a rule.
    """
    if composite is not None:
        options["composite"] = composite
    methods = method if isinstance(method, (list, tuple)) else [method]
    for each in methods:
        check_method(each, options)  # a wrong name raises before the model is run
    model = unwrap(model)
    settings = {"other": other, "layout": layout, "create_graph": create_graph, "first_order": first_order, **options}
    arguments = as_arguments(model, inputs, tokenizer)
    if explain is not None and not isinstance(explain, str):
        if not explain:
            raise ValueError("explain is an empty tuple: name at least one argument, or leave explain out")
        if len(methods) > 1:
            raise ValueError(
                "explain names several arguments, and method several methods: ask for one of both at a time"
            )
        settings["tokenizer"] = tokenizer
        return {name: attribute(model, arguments, target, methods[0], explain=name, **settings) for name in explain}
    call = _Call(model, target, tuple(methods), other, explain, layout, tokenizer, create_graph, first_order, options)
    with walked(model), telling_of_inputs(model, arguments):
        check_graph(model, create_graph)
        if not create_graph:  # who trains through a map means to be in train mode
            warn_of_train_mode(model)
        one = as_batch_of_one(model, arguments)
        try:
            maps = call.maps_of_mixed_rows(arguments) or call.maps(arguments, may_be_plain=one is None)
        except Exception as error:
            of_bag = call.maps_of_one_bag(arguments) if isinstance(error, UnsupportedModelError) else []
            if one is None and not of_bag:
                raise
            maps = of_bag if one is None else call.maps(one)
    return maps[0] if methods is not method else {each.method: each for each in maps}


@dataclass(frozen=True)
class _Call:
    """What is asked of a model; the fields are the arguments of `attribute`."""

    model: nn.Module
    target: Target
    methods: tuple[str | None, ...]
    other: Target
    explain: str | None
    layout: TokenLayout | None
    tokenizer: Any
    create_graph: bool
    first_order: bool
    options: dict[str, Any]

    def maps(self, inputs: Inputs, *, may_be_plain: bool = True) -> list[Relevance]:
        """Return the map by each method, from one forward pass that does what they need.

        A pass that is given up leaves nothing behind: the next one begins with the model and random state as they were.
        """
        chosen = [None if name is None else get_method(name, self.options) for name in self.methods]
        # Without a name, what cannot be run in float32 is the default method's failure, and another takes its place.
        in_float32 = all(each is not None and each.in_full_precision(self.options) for each in chosen)
        needs = {"tape" if each is None else each.needs for each in chosen}
        closed = gives_answers_only(self.model)
        untaped = needs <= {"answers", "gradient"} and not self.create_graph and self.layout is None
        if needs == {"answers"} if closed else untaped and may_be_plain and not is_plain():
            layout = self.layout if closed else None  # all that is known of the tokens
            plain: dict[str, Any] = {"layout": layout, "full_precision": in_float32, "plain": PlainPass}
            with suppress(NeedsTape), preserved(self.model):
                passed = forward_pass(self.model, inputs, self.explain, **plain)
                return self._from(replace(passed, serves_once=len(chosen) == 1))
        maps = self._by_plan(inputs) if may_be_plain and self.layout is None and not closed else None
        if maps is not None:
            return maps
        differentiable = self.create_graph or is_plain()
        with preserved(self.model):
            return self._from(
                forward_pass(
                    self.model,
                    inputs,
                    self.explain,
                    self.layout,
                    differentiable=differentiable,
                    full_precision=in_float32,
                )
            )

    def _by_plan(self, inputs: Inputs) -> list[Relevance] | None:
        """Return the map by an ordinary pass and one gradient, where a plan says what to swap; None without one."""
        asked = Asked(self.methods, self.options, (self.target, self.other), self.create_graph)
        known = planned(self.model, inputs, self.explain, asked)
        if known is None or known.is_refused:
            return None
        plan = known.trusted(self.model)
        if plan is None:
            return self._making_plan(known, inputs)
        try:
            with preserved(self.model):
                return self._from(forward_pass(self.model, inputs, self.explain, plain=known.by(plan)))
        except NonFiniteError:  # where no key may be attended to, say: the tape knows, or says so
            return None
        except NeedsTape:
            known.drop()
            return None if known.is_refused else self._making_plan(known, inputs)

    def _making_plan(self, known: Planned, inputs: Inputs) -> list[Relevance] | None:
        """Return the map by a new plan, which is trusted once its map equals that of the tape; else by the tape."""
        known.is_refused = True  # unless all goes well
        has_half = has_half_weights(self.model)
        options: dict[str, Any] = {"differentiable": False, "full_precision": has_half}
        maps, plan = None, None
        # What the tape cannot do it says; in float32 it is not asked for.
        with suppress(Exception if has_half else NeedsTape), preserved(self.model):
            maps, plan = self._on_noting_tape(known, inputs, options)
        with suppress(Exception), preserved(self.model):
            if maps and plan:
                passed = forward_pass(self.model, inputs, self.explain, plain=known.by(plan), **options)
                again = self._from(passed)
                if agree(maps[0], again[0]):
                    known.use(plan, self.model)
                    maps = again  # as it will be from now on, to the bit
        return None if has_half else maps

    def _on_noting_tape(
        self, known: Planned, inputs: Inputs, options: Mapping[str, Any]
    ) -> tuple[list[Relevance], Plan | None]:
        """Return the map and its plan; the tape is gone afterwards, before another pass takes as much memory."""
        passed = forward_pass(self.model, inputs, self.explain, tape_type=NotingTape, **options)
        count = len(passed.tape.calls) if isinstance(passed.tape, NotingTape) else 0
        maps = self._from(passed)
        with suppress(Exception):  # whatever fails, there is no plan
            recording = passed.logits()
            if recording.watched.token_ids is None:  # so that the plan's pass need not find it on a tape of its own
                explained_once(self.model, inputs, self.explain, recording.found_on_tape, recording.samples)
            return maps, PLANNED[known.method][0].of(recording, count)
        return maps, None

    def maps_of_mixed_rows(self, inputs: Inputs) -> list[Relevance]:
        """Return the maps of a bag that has as many rows as the model has classes: it looks like a batch of logits."""
        is_bag = False
        with suppress(Exception):  # what fails here fails where the map is made, too, and is told there
            model, named, given = self._as_one_bag(inputs)
            is_bag = model.is_meant(named, lambda arguments: _called(self.model, given(arguments)))
        return self.maps_of_one_bag(inputs) if is_bag else []

    def maps_of_one_bag(self, inputs: Inputs) -> list[Relevance]:
        """Return the map by each method of one bag `[rows, numbers]` without a batch axis; none if it is no bag."""
        model, named, given = self._as_one_bag(inputs)
        if not model.bare:
            return []
        bag = given(model.with_axis(named))
        try:
            return replace(self, model=model).maps(bag)
        except Exception:
            if self._answers(model, bag):
                raise
            return []

    def _as_one_bag(
        self, inputs: Inputs
    ) -> tuple[OfOneSample, Mapping[str, Any], Callable[[Mapping[str, Any]], Inputs]]:
        """Return the model as one of bags, the arguments by name, and what makes inputs of those."""
        name, _ = explained_input(inputs, self.explain)
        is_alone = isinstance(inputs, Tensor)
        named: Mapping[str, Any] = {name: inputs} if isinstance(inputs, Tensor) else inputs
        return OfOneSample(self.model, bare_arguments(named, name)), named, lambda x: x[name] if is_alone else x

    def _answers(self, model: nn.Module, bag: Inputs) -> bool:
        with suppress(Exception), preserved(self.model), torch.no_grad():
            return len(read_logits(_called(model, bag), 1)) == 1
        return False

    def _from(self, passed: ForwardPass) -> list[Relevance]:
        passed = replace(passed, tokenizer=self.tokenizer)
        if (
            self.other is None
            and isinstance(self.target, BinaryClassifierOutputTarget)
            and reads_a_logit(passed.output)
        ):
            with one_logit_as(LogitView((-1.0, 1.0))):
                maps = self._read(passed.under(Head()), self.target.category, None)
            # Of a function, the logits are its numbers, and there is one of them.
            return [
                replace(x, logits=x.logits.gather(1, x.target[:, None]), target=torch.zeros_like(x.target))
                for x in maps
            ]
        head, target, other = as_head(self.target, self.other, passed.output)
        return self._read(passed.under(head), target, other)

    def _read(self, recording: Recording, target: Target, other: Target) -> list[Relevance]:
        return [
            recording._attribute(target, name, other, self.create_graph, self.first_order, self.options)
            for name in self.methods
        ]


def _called(model: nn.Module, inputs: Inputs) -> Any:
    return model(inputs) if isinstance(inputs, Tensor) else model(**inputs)


def reads_a_logit(output: Any) -> bool:
    """Return whether a model's output is one logit per sample, of which both classes can be read.

    Rules that tell weights for from weights against a logit look at those of the last layer: for the class of the
    negative logit they must see the negative weights, so that the sign belongs to that layer, not behind it.
    """
    logits = logits_of(output)
    return logits is not None and has_one_logit(output) and not is_sigmoid(logits)


def as_recording(
    tape: Tape,
    output: Any,
    model: nn.Module,
    inputs: Inputs,
    layout: TokenLayout | None = None,
    explain: str | None = None,
) -> Recording:
    """Return a forward pass that has run on a tape as a recording, its operations canonized."""
    return ForwardPass(tape, output, model, inputs, explain, layout, autocast_state()).under(Head())
