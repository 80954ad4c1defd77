"""Rules and composites: which rule serves which operation, and how a user changes that.

A composite maps operations to rules, by name ("linear") and by the module that runs them ("blocks.0.*"). Every method
has one. Where several composites have a rule for an operation, the nearest to the call counts:

1. the composite of the call, `attribute(..., composite=...)`;
2. `with composite:` blocks, the innermost first;
3. rules that were registered for the process, the latest first;
4. the method's own composite.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import translate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.types import Registration, unknown_name

if TYPE_CHECKING:
    from lrptrain.relevance.propagation.propagator import Propagator

# Relevance of every output of an operation, or None where none arrived.
OutputRelevance = list[Tensor | None]
# Relevance of the inputs of an operation that depend on the explained input.
InputRelevance = Iterable[tuple[Value, Tensor]]
# (propagator, node, relevance of the outputs) -> relevance of the inputs
RuleFunction = Callable[["Propagator", Node, OutputRelevance], InputRelevance]


@dataclass(frozen=True)
class Rule:
    """A rule that knows for which operations it is meant, so that a name map can give it a whole module.

    Examples:
        >>> import torch, lrptrain
        >>> def equal(propagator, node, relevance):
        ...     yield node.inputs[0], relevance[0].expand(-1, 2) / 2
        >>> rule = lrptrain.Rule("equal", equal, frozenset({"linear"}))
        >>> layer = torch.nn.Linear(2, 1)
        >>> relevance = lrptrain.attribute(layer, torch.rand(1, 2), composite={"linear": rule})
        >>> bool(relevance.scores[0, 0] == relevance.scores[0, 1])
        True

    Attributes:
        name: The rule's name, for messages.
        function: `function(propagator, node, relevance)` yields `(value, relevance)` for the values in `node.inputs`.
        operations: Names of the operations that a name map serves with it.
    """

    name: str
    function: RuleFunction = field(repr=False)
    operations: frozenset[str]

    def __call__(self, propagator: "Propagator", node: Node, relevance: OutputRelevance) -> InputRelevance:
        """Pass relevance of a node's outputs to its inputs."""
        return self.function(propagator, node, relevance)


Pattern = str | re.Pattern[str]


class Composite:
    """Rules by operation and by module, in zennit's words: a type map and a name map.

    It changes some rules of a method, for one call (`composite=composite`) or within a block (`with composite: ...`).

    Examples:
        >>> import torch, lrptrain
        >>> layer = torch.nn.Linear(2, 1, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -1.0]]))
        >>> composite = lrptrain.Composite(type_map={torch.nn.Linear: lrptrain.rules.zplus()})
        >>> lrptrain.attribute(layer, torch.tensor([[2.0, 1.0]]), composite=composite).scores  # without it: 2 and -1
        tensor([[1., 0.]])

    Args:
        type_map: Rule by the name of an operation, as error messages have it ("linear", "softmax", "diff"), or by the
            class of the module that runs it (`nn.Linear`), which goes first. A value is a `Rule`, or, for a class, also
            a mapping from operations to rules.
        name_map: Rule by the path of the module, as `model.named_modules()` has it: a pattern of `fnmatch` for the
            whole path ("blocks.1.*" is all inside of `blocks.1`, not `blocks.10`) or a compiled regular expression. The
            first match with a rule for the operation wins, before the type map. Values are as for classes.
        name: The composite's name.
        replaceable: Whether rules of the user's go before these; otherwise they serve only what has no rule here.
        stabiliser: What the rules add to denominators; None for rules of their own. With one, relevance of a tensor
            that several operations take is divided by it once more, as the code of Chefer et al. 2021 does.
        by_queries: Whether no rule sums over several queries of an attention, so that these can be taken in parts.

    Raises:
        TypeError: If a rule is no function, or a rule of a class or in the name map does not say for which operations
            it is meant.
    """

    def __init__(
        self,
        type_map: Mapping[Any, RuleFunction] | None = None,
        name_map: Mapping[Pattern, Rule | Mapping[str, RuleFunction]] | None = None,
        *,
        name: str = "custom",
        replaceable: bool = True,
        stabiliser: float = 0.0,
        by_queries: bool = False,
    ) -> None:
        self.name = name
        self.by_queries = by_queries
        self.stabiliser = stabiliser
        self.replaceable = replaceable
        by_key = dict(type_map or {})
        self.type_map: dict[str, RuleFunction] = {key: by_key[key] for key in by_key if isinstance(key, str)}
        self._by_class = [
            (kind, _by_operation(f"the type map's rule for {kind.__name__}", rule))
            for kind, rule in by_key.items()
            if isinstance(kind, type)
        ]
        self._by_path = [
            (_compiled(pattern), _by_operation(f"the name map's rule for {pattern!r}", rule))
            for pattern, rule in (name_map or {}).items()
        ]
        for operation, rule in self.type_map.items():
            _check_rule(f"the type map's {operation!r}", rule)

    def __repr__(self) -> str:
        patterns = [pattern.pattern for pattern, _ in self._by_path]
        return f"Composite({self.name!r}, operations={sorted(self.type_map)}, modules={patterns})"

    def rule_for(self, node: Node) -> RuleFunction | None:
        """Return the rule that serves a recorded operation, or None."""
        for pattern, rules in self._by_path:
            if node.name in rules and pattern.fullmatch(node.path):
                return rules[node.name]
        for kind, rules in self._by_class:
            if node.name in rules and issubclass(_CLASSES.get().get(node.path, nn.Module), kind):
                return rules[node.name]
        return self.type_map.get(node.name)

    @property
    def names_modules(self) -> bool:
        """Whether rules are given by the paths or the classes of modules."""
        return bool(self._by_path or self._by_class)

    def check(self, nodes: Collection[Node]) -> None:
        """Raise if a rule serves no operation: it would be left out in silence.

        Args:
            nodes: The operations of the model.

        Raises:
            ValueError: If there is one, with what the model has.
        """
        classes = _CLASSES.get()
        for pattern, rules in self._by_path:
            if not any(pattern.fullmatch(path) for path in classes):
                listed = ", ".join(path for path in [*classes][1:6])
                raise ValueError(
                    f"the composite's name map has a pattern that no module of the model matches: "
                    f"{pattern.pattern!r}; its modules are called {listed}, ..."
                )
            served = {node.name for node in nodes if pattern.fullmatch(node.path)}
            _check_served(f"of the pattern {pattern.pattern!r}", rules, served)
        for kind, rules in self._by_class:
            of_class = {path for path, each in classes.items() if issubclass(each, kind)}
            if not of_class:
                listed = ", ".join(sorted({each.__name__ for each in classes.values()}))
                raise ValueError(f"the composite has a rule for {kind.__name__}; the model has only {listed}")
            _check_served(f"of {kind.__name__}", rules, {node.name for node in nodes if node.path in of_class})
        for operation in self.type_map:
            _check_served(f"for {operation!r}", [operation], {node.name for node in nodes})

    def __enter__(self) -> Self:
        """Use the composite's rules in every call of the block."""
        _ACTIVE.set((*_ACTIVE.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        """Use them no longer."""
        active = list(_ACTIVE.get())
        # The same composite may have been entered twice: the inner one is left.
        del active[len(active) - 1 - active[::-1].index(self)]
        _ACTIVE.set(tuple(active))


# The classes of the model's modules by their paths, while a composite names modules.
_CLASSES: ContextVar[Mapping[str, type[nn.Module]]] = ContextVar("classes of modules", default=MappingProxyType({}))
# The composites of the call and of `with` blocks, innermost last. Each thread and task has its own.
_ACTIVE: ContextVar[tuple[Composite, ...]] = ContextVar("active composites", default=())


# What a call takes as its composite.
Rules = Composite | Mapping[Any, RuleFunction]


def as_composite(rules: Rules) -> Composite:
    """Return a mapping from operations to rules as a composite."""
    return rules if isinstance(rules, Composite) else Composite(rules)


def split_composite(options: Mapping[str, Any]) -> tuple[dict[str, Any], AbstractContextManager[object]]:
    """Take the rules of a call out of its options, to be used in a `with` block.

    The name of a composite is an option of the method itself.
    """
    others = dict(options)
    composite = others.get("composite")
    if composite is None or isinstance(composite, str):
        return others, nullcontext()
    del others["composite"]
    return others, as_composite(composite)


def use_rules(rules: Rules) -> Composite:
    """Use rules in every call of a block: `with lrptrain.use_rules({"diff": rules.epsilon()}): ...`.

    Examples:
        >>> import torch, lrptrain
        >>> with lrptrain.use_rules({"linear": lrptrain.rules.flat()}):
        ...     relevance = lrptrain.attribute(torch.nn.Linear(2, 1), torch.rand(1, 2))
        >>> bool(relevance.scores[0, 0] == relevance.scores[0, 1])
        True

    Args:
        rules: A composite, or rules by the name of their operation.
    """
    return as_composite(rules)


# -- Rules for the process ---------------------------------------------------------------------------------------------

# The composites of the methods, which a registration can be limited to.
COMPOSITES = ("alpha_beta", "attnlrp", "chefer", "cp", "epsilon", "gamma", "split_alpha_beta")


@dataclass(frozen=True, eq=False)
class RegisteredRule(Registration):
    """A rule that counts until it is removed: by `remove()`, or at the end of a `with` block."""

    operation: str
    rule: RuleFunction
    composites: frozenset[str] | None

    def remove(self) -> None:
        """Forget the rule; earlier ones for the same operation count again. Removing it twice does nothing."""
        if self in _REGISTERED:
            _REGISTERED.remove(self)


_REGISTERED: list[RegisteredRule] = []


def register_rule(name: str, rule: RuleFunction, composites: Iterable[str] | None = None) -> RegisteredRule:
    """Teach the engine how an operation passes relevance, for the rest of the process or until the handle is removed.

    It serves every composite, also in place of the method's own rule for that operation. `attnlrp` then takes its
    explicit form, as its gradient form cannot express what a rule gives to an activation of 0.

    Examples:
        >>> import torch, lrptrain
        >>> class Steps(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).diff(dim=1)
        >>> with lrptrain.register_rule("diff", lrptrain.rules.epsilon()):
        ...     lrptrain.attribute(Steps(2, 3), torch.rand(1, 2)).method
        'attnlrp'

    Args:
        name: The operation, as `UnsupportedOperationError` names it.
        rule: One of `lrptrain.rules`, or `rule(propagator, node, relevance)`, which gets one tensor (or None) per
            output of the node, writes into none, and yields `(value, relevance)` for the values in `node.inputs`. To
            differentiate, it repeats `node.call` on inputs of its own: recorded tensors may have no graph.
        composites: The composites that use it ("alpha_beta", "attnlrp", "chefer", "cp", "epsilon", "gamma",
            "split_alpha_beta"); None for all.

    Returns:
        A handle with `remove()`, which is also a context manager.

    Raises:
        TypeError: If the rule is no function.
        ValueError: If a composite is unknown, or the name is nearly that of an operation of torch.
    """
    _check_rule(f"the rule for {name!r}", rule)
    homes = (torch, torch.nn.functional, Tensor, torch.special, torch.linalg, torch.fft)
    if not any(hasattr(home, name) for home in homes):
        near = get_close_matches(name, {each for home in homes for each in dir(home)}, 3, cutoff=0.8)
        if near:
            raise ValueError(f"torch has no operation {name!r}; did you mean {' or '.join(near)}?")
    limited = None if composites is None else frozenset([composites] if isinstance(composites, str) else composites)
    for composite in sorted(limited or ()):
        if composite not in COMPOSITES:
            raise ValueError(unknown_name("composite", composite, COMPOSITES))
    handle = RegisteredRule(name, rule, limited)
    _REGISTERED.append(handle)
    return handle


# -- Which rule counts -------------------------------------------------------------------------------------------------


def custom_rule(node: Node, composite: str | None) -> RuleFunction | None:
    """Return the user's rule for an operation, or None; a composite's name lets those limited to others not count."""
    for active in reversed(_ACTIVE.get()):
        rule = active.rule_for(node)
        if rule is not None:
            return rule
    for registered in reversed(_REGISTERED):
        limited = composite is not None and registered.composites is not None
        if registered.operation == node.name and not (limited and composite not in (registered.composites or ())):
            return registered.rule
    return None


def custom_rules() -> tuple[object, ...]:
    """Return all that decides on the user's rules now, as a key for results that depend on them."""
    return (*_ACTIVE.get(), *_REGISTERED)


@contextmanager
def applied_to(model: nn.Module, nodes: Collection[Node]) -> Iterator[None]:
    """Apply the composites in use to a model; raise if a rule of theirs serves nothing, see `Composite.check`."""
    active = _ACTIVE.get()
    named = any(composite.names_modules for composite in active)
    token = _CLASSES.set({path: type(module) for path, module in model.named_modules()} if named else {})
    try:
        for composite in active:
            composite.check(nodes)
        yield
    finally:
        _CLASSES.reset(token)


def _check_served(what: str, rules: Collection[str], names: Collection[str]) -> None:
    """Raise if no operation of these names has a rule."""
    if not set(rules) & set(names):
        near = {match for rule in rules for match in get_close_matches(rule, names, 3)}
        hint = f"did you mean {' or '.join(sorted(near))}? " if near else ""
        raise ValueError(
            f"the composite's rule {what} serves no operation of the model; {hint}there are {', '.join(sorted(names))}"
        )


def _compiled(pattern: Pattern) -> re.Pattern[str]:
    return re.compile(translate(pattern)) if isinstance(pattern, str) else pattern


def _by_operation(what: str, rule: Any) -> Mapping[str, RuleFunction]:
    if isinstance(rule, Rule):
        return dict.fromkeys(rule.operations, rule)
    if isinstance(rule, Mapping):
        for operation, function in rule.items():
            _check_rule(f"{what}, {operation!r},", function)
        return rule
    raise TypeError(
        f"{what} does not say for which operations it is meant: give "
        "{'<operation>': rule}, or lrptrain.rules.Rule(name, rule, operations)"
    )


def _check_rule(what: str, rule: object) -> None:
    if not callable(rule):
        raise TypeError(
            f"{what} must be a function (propagator, node, relevance), or one of lrptrain.rules, not {rule!r}"
        )
