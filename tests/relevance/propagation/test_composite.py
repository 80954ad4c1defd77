"""Which rule counts: per call, in a block, for the process; by operation and by module; the same in all forms."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS
from small_models import Block, Small, patches
from torch import Tensor, nn

import lrptrain
from lrptrain import Composite, UnsupportedMethodError, UnsupportedOperationError, rules
from lrptrain.relevance.propagation import composite as composite_module

BY_RULES = ("attnlrp", "cp_lrp", "epsilon_lrp", "gamma_lrp", "lrp", "partial_lrp", "transformer_attribution")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert composite_module._REGISTERED == []
    assert composite_module._ACTIVE.get() == ()


def doubled(propagator, node, relevance):
    """No rule of the literature: relevance twice, and 1 for every activation, also those that are 0."""
    (part,) = relevance
    yield node.inputs[0], 2 * part + 1.0


def attributed(model: nn.Module, method: str = "attnlrp", **options) -> Tensor:
    return lrptrain.attribute(model, patches(), 1, method, **options).scores


class Deep(nn.Module):
    """Two modules of the same kind, with an activation that is 0 for half of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.small = Small(between=Block(torch.relu))
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)).double()
        generator = torch.Generator().manual_seed(3)
        for parameter in self.blocks.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.small(x)
        for block in self.blocks:
            y = y + block(y)
        return y


# -- A custom operation, end to end ------------------------------------------------------------------------------------


def test_an_operation_without_a_rule_then_with_one_then_without():
    model = Small(Block(lambda x: x.diff(dim=1)))
    with pytest.raises(UnsupportedOperationError, match=r"diff in module 'between'.*register_rule\('diff', rule\)"):
        attributed(model)
    handle = lrptrain.register_rule("diff", rules.epsilon(0.0))
    scores = attributed(model, "attnlrp")
    handle.remove()
    handle.remove()
    # diff is a product with a matrix of two diagonals, whose rule is the engine's own.
    changes = torch.eye(16, dtype=torch.float64).diff(dim=0)
    expected = attributed(Small(Block(lambda x: changes @ x)), "attnlrp", form="explicit")
    assert relative_error(scores, expected).max() < 1e-9
    with pytest.raises(UnsupportedOperationError, match="diff"):
        attributed(model)


def test_the_map_of_a_custom_operation_conserves_the_logit():
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Conv2d(3, 8, 4, 4, bias=False), nn.Linear(8, 4, bias=False)
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x).flatten(2).transpose(1, 2).diff(dim=1).mean(1))

    found = lrptrain.attribute(Linear(), patches(), 1, "attnlrp", composite={"diff": rules.epsilon(0.0)})
    torch.testing.assert_close(found.scores.sum(1), found.logits[:, 1])


# -- Both forms --------------------------------------------------------------------------------------------------------

CUSTOM: dict[str, Composite] = {
    "twice and one more": Composite({"relu": doubled}),
    "activations": Composite({"relu": rules.pass_()}),
    "gamma": Composite(name_map={"*": rules.gamma(0.5)}),
    "flat, also where an activation is 0": Composite({"linear": rules.flat()}),
    "w squared": Composite({"linear": rules.wsquare(), "conv2d": rules.wsquare()}),
    "z+ and z^B": Composite({"linear": rules.zplus(), "conv2d": rules.zbox()}),
    "alpha-beta": Composite({"linear": rules.alpha_beta(2.0, 1.0)}),
    "sums": Composite({"add": rules.epsilon(0.1)}),
    "softmax as it is": Composite({"softmax": rules.pass_()}),
    "products": Composite({"matmul": rules.epsilon(0.1)}),
}


@pytest.mark.parametrize("name", CUSTOM)
def test_both_forms_of_attnlrp_agree_for_every_custom_rule(name):
    model = Deep()
    gradient, explicit = (attributed(model, form=form, composite=CUSTOM[name]) for form in ("gradient", "explicit"))
    assert relative_error(gradient, explicit).max() < 1e-9
    if name not in ("products", "activations"):  # these are what the method does itself
        assert relative_error(gradient, attributed(model)).max() > 1e-6


@pytest.mark.parametrize("kind", ["vit", "bert", "deberta_v3", "timm_swin"])
def test_both_forms_agree_on_models_as_they_are(kind):
    recording = lrptrain.record(KINDS[kind].build(True), KINDS[kind].inputs())
    composite = Composite({"gelu": doubled, "softmax": rules.pass_()}, {"*": rules.gamma(0.3)})
    maps = [recording.attribute([0, 3, 4], "attnlrp", form=form, composite=composite).scores
            for form in ("gradient", "explicit")]  # fmt: skip
    assert relative_error(*maps).max() < 1e-9


@pytest.mark.parametrize(
    ("composite", "message"),
    [
        ({"lineer": rules.gamma(1.0)}, "for 'lineer' serves no operation of the model; did you mean linear"),
        ({"diff": doubled}, "for 'diff' serves no operation of the model; there are add, chunk, conv2d"),
        ({"linear": rules.gamma(1.0), "diff": doubled}, "for 'diff' serves no operation"),
        ({nn.Conv1d: rules.gamma(1.0)}, "has a rule for Conv1d; the model has only Block, Conv2d, Deep"),
        ({nn.ReLU: rules.gamma(1.0)}, "of ReLU serves no operation of the model; there are relu"),
        (Composite(name_map={"blocks": rules.gamma(1.0)}), "of the pattern .* serves no operation"),
        (
            Composite(name_map={"blocks.*": {"softmax": doubled}}),
            "serves no operation of the model; there are linear, relu",
        ),
    ],
)
def test_a_rule_that_serves_nothing_is_an_error(composite, message):
    with pytest.raises(ValueError, match=message):
        attributed(Deep(), composite=composite)
    with pytest.raises(ValueError, match=message), lrptrain.use_rules(composite):
        attributed(Deep())
    assert attributed(Deep()).isfinite().all()


def test_classes_of_modules_are_keys():
    """As in zennit; a subclass counts, and a class goes before an operation."""

    class Own(nn.Linear):
        pass

    model = Deep()
    model.get_submodule("blocks.1.0").__class__ = Own
    by_class = attributed(model, composite={nn.Linear: rules.gamma(1.0), "linear": rules.epsilon(0.0)})
    assert torch.equal(by_class, attributed(model, composite={"linear": rules.gamma(1.0)}))
    own = attributed(model, composite={Own: rules.gamma(1.0)})
    assert torch.equal(own, attributed(model, composite=Composite(name_map={"blocks.1.0": rules.gamma(1.0)})))
    assert relative_error(own, by_class).max() > 1e-6
    activations = attributed(model, composite={nn.ReLU: {"relu": doubled}})
    assert torch.equal(activations, attributed(model, composite=Composite(name_map={"blocks.?.1": {"relu": doubled}})))


def test_names_that_are_nearly_those_of_operations():
    with pytest.raises(ValueError, match="torch has no operation 'lineer'; did you mean linear"):
        lrptrain.register_rule("lineer", doubled)
    with lrptrain.register_rule("flash_attention_of_my_own", doubled):
        assert attributed(Deep()).isfinite().all()


def test_a_custom_rule_sees_relevance_itself_in_both_forms():
    """What arrives at the last operation is the explained logit, not 1."""
    seen = []

    def spy(propagator, node, relevance):
        seen.append(relevance[0].clone())
        return rules.epsilon(0.0)(propagator, node, relevance)

    model = Small()
    for form in ("gradient", "explicit"):
        found = lrptrain.attribute(
            model, patches(), 1, "attnlrp", form=form, composite=Composite(name_map={"head": {"linear": spy}})
        )
        torch.testing.assert_close(seen.pop()[:, 1], found.logits[:, 1])
        assert not seen


def test_a_composite_of_a_users_method_gives_way_to_that_of_the_call():
    own = Composite({"linear": rules.epsilon(0.0)})

    def by_own_composite(explanation) -> lrptrain.RelevanceMaps:
        (relevance,) = explanation.relevance(own, [explanation.recording.tape.root], of_logit=True)
        return lrptrain.RelevanceMaps(relevance.flatten(1))

    model, x = nn.Linear(16, 4).double(), patches()[:, 0, 0].contiguous()
    with lrptrain.register_method(by_own_composite, class_specific=True, signed=True, uses_rules=True):
        recording = lrptrain.record(model, x)
        plain = recording.attribute(1, "by_own_composite").scores
        flat = recording.attribute(1, "by_own_composite", composite={"linear": rules.flat()}).scores
    torch.testing.assert_close(plain, x * model.weight[1].detach())
    torch.testing.assert_close(flat, (recording.logits[:, 1:2] / 16).expand(3, 16))


# -- Where rules count -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", BY_RULES)
def test_a_composite_counts_for_its_call_only(method):
    model = Deep()
    before = attributed(model, method)
    changed = attributed(model, method, composite={"linear": rules.flat(), "conv2d": rules.flat()})
    assert relative_error(changed, before).max() > 1e-6
    assert torch.equal(attributed(model, method), before)
    recording = lrptrain.record(model, patches())
    by_recording = recording.attribute(1, method, composite={"linear": rules.flat(), "conv2d": rules.flat()})
    assert relative_error(by_recording.scores, changed).max() < 1e-9


def test_the_nearest_composite_wins():
    model = Deep()
    maps = {gain: attributed(model, composite={"linear": rules.gamma(gain)}) for gain in (0.1, 0.2, 0.3, 0.4)}
    with lrptrain.register_rule("linear", rules.gamma(0.1)):
        assert torch.equal(attributed(model), maps[0.1])
        with lrptrain.register_rule("linear", rules.gamma(0.2)):
            assert torch.equal(attributed(model), maps[0.2])
            with lrptrain.use_rules({"linear": rules.gamma(0.3)}):
                assert torch.equal(attributed(model), maps[0.3])
                with Composite({"linear": rules.gamma(0.4)}):
                    assert torch.equal(attributed(model), maps[0.4])
                    assert torch.equal(attributed(model, composite={"linear": rules.gamma(0.1)}), maps[0.1])
                    assert torch.equal(attributed(model, composite={"relu": rules.pass_()}), maps[0.4])
                assert torch.equal(attributed(model), maps[0.3])
        assert torch.equal(attributed(model), maps[0.1])


def test_a_composite_may_be_entered_twice_and_an_error_leaves_it():
    composite = Composite({"linear": rules.gamma(0.4)})
    other = Composite({"linear": rules.gamma(0.1)})
    expected = attributed(Deep(), composite=other)
    with composite, other:
        with composite:
            pass
        assert torch.equal(attributed(Deep()), expected)
    with pytest.raises(ZeroDivisionError), composite:
        raise ZeroDivisionError


def test_other_threads_do_not_see_a_block():
    seen: list[object] = []
    with Composite({"linear": doubled}):
        thread = threading.Thread(target=lambda: seen.append(composite_module._ACTIVE.get()))
        thread.start()
        thread.join()
    assert seen == [()]


def test_a_registration_can_be_limited_to_composites():
    model = Deep()
    plain = {method: attributed(model, method) for method in ("lrp", "attnlrp", "transformer_attribution")}
    with lrptrain.register_rule("linear", rules.flat(), composites="alpha_beta") as handle:
        assert (handle.operation, handle.composites) == ("linear", {"alpha_beta"})
        assert relative_error(attributed(model, "lrp"), plain["lrp"]).max() > 1e-6
        assert torch.equal(attributed(model, "attnlrp"), plain["attnlrp"])
        assert torch.equal(attributed(model, "transformer_attribution"), plain["transformer_attribution"])
        assert torch.equal(
            attributed(model, "lrp", composite="chefer"),
            lrptrain.attribute(model, patches(), 1, "lrp", composite="chefer").scores,
        )
    with lrptrain.register_rule("linear", rules.flat(), composites=("chefer", "gamma")):
        assert torch.equal(attributed(model, "lrp"), plain["lrp"])
        assert (
            relative_error(attributed(model, "transformer_attribution"), plain["transformer_attribution"]).max() > 1e-6
        )
    with lrptrain.register_rule("linear", rules.flat(), composites="gamma"):
        assert relative_error(attributed(model, "gamma_lrp", gamma=0.0), plain["attnlrp"]).max() > 1e-6
    with lrptrain.register_rule("linear", rules.flat()) as handle:
        assert handle.composites is None
        assert relative_error(attributed(model, "attnlrp"), plain["attnlrp"]).max() > 1e-6


def test_rules_of_users_do_not_move_the_tokens_or_the_pooling():
    """Where the patches stand, and what is pooled, is read off the tape by rules of its own."""
    model = KINDS["vit"].build(True)
    recording = lrptrain.record(model, KINDS["vit"].inputs())
    expected = recording.pooling
    with lrptrain.register_rule("linear", doubled), lrptrain.use_rules({"add": doubled, "getitem": doubled}):
        again = lrptrain.record(model, KINDS["vit"].inputs())
        assert torch.equal(again.pooling, expected)
        assert again.layout == recording.layout


def test_the_pooling_goes_through_a_custom_operation_by_its_rule():
    model = Small(after=Block(lambda x: x.nansum(1, keepdim=True)))
    recording = lrptrain.record(model, patches())
    with pytest.raises(UnsupportedOperationError, match="nansum"):
        recording.attribute(1, "rollout")
    with lrptrain.use_rules({"nansum": rules.epsilon()}):
        scores = recording.attribute(1, "rollout").scores
    # A rule for one composite still is the only one that there is for the pooling.
    with lrptrain.register_rule("nansum", rules.epsilon(), composites="gamma"):
        assert torch.equal(recording.attribute(1, "rollout").scores, scores)
    with pytest.raises(UnsupportedOperationError, match="nansum"):
        recording.attribute(1, "rollout")


# -- Modules -----------------------------------------------------------------------------------------------------------


def by_hand(model: Deep, gains: dict[int, float]) -> Tensor:
    """AttnLRP of the two last blocks with the gamma rule, from their inputs and outputs, and of the rest."""

    def gamma_of(index: int) -> rules.Rule:
        return rules.gamma(gains[index]) if index in gains else rules.epsilon(0.0)

    names: dict[Any, Any] = {f"blocks.{index}.0": {"linear": gamma_of(index)} for index in (0, 1)}
    return attributed(model, composite=Composite(name_map=names))


def test_a_name_map_serves_the_modules_that_it_names():
    model = Deep()
    only_first = attributed(model, composite=Composite(name_map={"blocks.0.*": rules.gamma(0.5)}))
    assert relative_error(only_first, by_hand(model, {0: 0.5})).max() < 1e-12
    assert relative_error(only_first, by_hand(model, {1: 0.5})).max() > 1e-6
    by_pattern = attributed(model, composite=Composite(name_map={re.compile(r"blocks\.0\.\d"): rules.gamma(0.5)}))
    assert torch.equal(by_pattern, only_first)


def test_the_first_match_wins_and_names_go_before_types():
    model = Deep()
    found = attributed(
        model,
        composite=Composite(
            {"linear": rules.flat()},
            {"blocks.1.*": rules.gamma(0.5), "blocks.*": rules.epsilon(0.0), "small*": rules.epsilon(0.0)},
        ),
    )
    assert relative_error(found, by_hand(model, {1: 0.5})).max() < 1e-9


def test_a_rule_of_a_name_map_serves_the_operations_that_it_is_meant_for():
    """The activations and reshapes in the named modules keep their rules; the next match serves them."""
    model = Deep()
    composite = Composite(name_map={"blocks.*": rules.gamma(0.5), "*": {"relu": doubled}})
    relu_and_gamma = attributed(model, composite=composite)
    both = Composite({"relu": doubled}, {"blocks.0.0": rules.gamma(0.5), "blocks.1.0": rules.gamma(0.5)})
    assert torch.equal(relu_and_gamma, attributed(model, composite=both))


@pytest.mark.parametrize("pattern", ["block.0.*", "BLOCKS.*", "blocks", re.compile("blocks.0")])
def test_patterns_match_whole_paths_with_their_case(pattern):
    composite = Composite(name_map={pattern: rules.gamma(0.5)})
    if pattern in ("blocks", re.compile("blocks.0")):  # modules, but none that runs a linear layer itself
        with pytest.raises(ValueError, match="serves no operation"):
            attributed(Deep(), composite=composite)
        return
    with pytest.raises(ValueError, match=r"matches: .*its modules are called small, "):
        attributed(Deep(), composite=composite)
    with pytest.raises(ValueError, match="no module"), composite:
        attributed(Deep())


def test_patterns_of_a_block_do_not_concern_methods_without_rules():
    with Composite(name_map={"elsewhere": rules.gamma()}):
        assert lrptrain.attribute(Deep().small, patches(), 1, "rollout").scores.isfinite().all()


# -- What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Composite({"linear": 3}), "the type map's 'linear' must be a function"),  # type: ignore[dict-item]
        (lambda: Composite(name_map={"*": {"linear": None}}), r"the name map's rule for '.*', 'linear', must be"),  # type: ignore[dict-item]
        (lambda: Composite(name_map={"*": doubled}), "does not say for which operations it is meant"),  # type: ignore[dict-item]
        (lambda: lrptrain.register_rule("abs", "pass"), "the rule for 'abs' must be a function"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_rule(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_unknown_composites():
    with pytest.raises(ValueError, match="unknown composite 'chefr'; did you mean chefer"):
        lrptrain.register_rule("abs", doubled, composites=["chefr"])
    with pytest.raises(ValueError, match="unknown composite 'zplus'; known are alpha_beta, chefer, split_alpha_beta"):
        attributed(Deep(), "lrp", composite="zplus")
    with pytest.raises(UnsupportedMethodError, match="unknown option of attnlrp 'composite'; known are form"):
        attributed(Deep(), "attnlrp", composite="chefer")


@pytest.mark.parametrize("method", ["rollout", "input_x_gradient", "random"])
def test_methods_without_rules_take_no_composite(method):
    with pytest.raises(
        UnsupportedMethodError, match=f"{method} propagates no relevance by rules.*attnlrp, cp_lrp, epsilon_lrp"
    ):
        attributed(Deep(), method, composite={"linear": doubled})


@pytest.mark.parametrize("method", [method for method in lrptrain.methods() if method not in BY_RULES])
def test_methods_that_say_so_use_no_rules(method):
    from lrptrain.relevance.registry import get_method

    assert not get_method(method, {}).uses_rules


# -- Other classes, graphs ---------------------------------------------------------------------------------------------


def absolute(propagator, node, relevance):
    yield node.inputs[0], relevance[0].abs()


@pytest.mark.parametrize("rule", [absolute, doubled])
@pytest.mark.parametrize("method", ["attnlrp", "lrp", "gamma_lrp"])
def test_a_contrast_is_the_difference_of_two_maps_whatever_the_rule(method, rule):
    """A rule that is not linear in relevance, as one that normalises is not, may not see both classes at once."""

    model, composite = Deep(), {"relu": rule}
    one, two = (lrptrain.attribute(model, patches(), target, method, composite=composite).scores for target in (1, 2))
    both = lrptrain.attribute(model, patches(), 1, method, other=2, composite=composite).scores
    torch.testing.assert_close(both, one - two)


def test_custom_rules_can_be_trained_through():
    model = Deep()
    found = lrptrain.attribute(
        model, patches(), 1, "attnlrp", composite=Composite(name_map={"*": rules.gamma(0.5)}), create_graph=True
    )
    found.scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.blocks.parameters())


def test_a_composite_says_what_it_has():
    text = repr(Composite({"relu": doubled}, {re.compile("blocks.*"): rules.gamma()}))
    assert text == "Composite('custom', operations=['relu'], modules=['blocks.*'])"
    assert repr(rules.gamma()).startswith("Rule(name='gamma', operations=")
