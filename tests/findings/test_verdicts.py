from dataclasses import replace

import numpy as np
import pytest
from examples import finding

from lrptrain.findings import (
    OVERALL,
    Effect,
    Scope,
    carry_over,
    fold,
    nearest_test,
    news_among,
    reach_verdicts,
    sign_flip_test,
    unfold,
)

SUSPECT = finding()


def effect(mean, spread=0.1, samples=20, control=0.0, seed=0):
    noise = np.random.default_rng(seed).normal(size=samples)
    noise = spread * (noise - noise.mean()) / noise.std(ddof=1)
    return Effect(control + mean + noise, np.full(samples, control))


def states(*effects, min_effect=0.05):
    return [fact.state for fact in reach_verdicts([SUSPECT] * len(effects), effects, min_effect)]


def test_a_clear_effect_confirms_and_none_refutes():
    assert states(effect(0.4)) == ["confirmed"]
    assert states(effect(0.4, control=0.5)) == ["confirmed"]
    assert states(effect(0.0, spread=0.02)) == ["refuted"]
    assert states(effect(-0.4)) == ["refuted"]
    assert states(effect(0.04, spread=0.001)) == ["refuted"]  # sure, but too small to matter


def test_what_no_map_shows_is_confirmed_by_a_large_effect_only():
    unseen = replace(SUSPECT, kind="reliance_outside_annotation", scope=OVERALL)
    effects = [effect(0.4), effect(0.2), effect(0.3, spread=0.5)]
    assert [fact.state for fact in reach_verdicts([unseen] * 3, effects, 0.05)] == ["confirmed", "refuted", "suspected"]
    assert [fact.state for fact in reach_verdicts([unseen] * 3, effects, 0.35)] == ["confirmed", "refuted", "suspected"]


CLASS = Scope("class", "cat")


@pytest.mark.parametrize(
    ("medium", "scope", "least"),
    [
        ("image", OVERALL, 0.2), ("image", CLASS, 0.2), ("text", OVERALL, 0.3), ("", OVERALL, 0.3),
        ("text", CLASS, 0.5), ("text", Scope("group", "1"), 0.5),
    ],
)  # fmt: skip
def test_what_no_map_shows_is_confirmed_by_less_on_images_and_by_more_in_a_class_of_texts(medium, scope, least):
    unseen = replace(SUSPECT, kind="reliance_outside_annotation", medium=medium, scope=scope)
    below, above = (effect(least + off, spread=0.005) for off in (-0.01, 0.01))
    assert [fact.state for fact in reach_verdicts([unseen] * 2, [below, above], 0.05)] == ["refuted", "confirmed"]
    # The number that shows a trend goes by the same bound.
    nearest = [nearest_test([unseen], [each], 0.05) for each in (below, above)]
    ratios = [each.ratio for each in nearest if each]
    assert ratios == pytest.approx([1 - 0.01 / least, 1 + 0.01 / least])


@pytest.mark.parametrize(("scope", "mean", "state"), [
    (OVERALL, 0.1, "confirmed"), (CLASS, 0.1, "suspected"), (CLASS, 0.45, "suspected"), (CLASS, 0.55, "confirmed"),
    (CLASS, 0.0, "refuted"),
])  # fmt: skip
def test_what_the_map_of_a_class_of_texts_shows_takes_fifty_points_and_is_refuted_below_five(scope, mean, state):
    candidate = finding(medium="text", scope=scope)
    (verdict,) = reach_verdicts([candidate], [effect(mean, 0.01)], 0.05)
    assert verdict.state == state
    (verdict,) = reach_verdicts([replace(candidate, medium="image")], [effect(max(mean, 0.1), 0.01)], 0.05)
    assert verdict.state == "confirmed"


def removed(mean, **options):
    return effect(mean, **options)._replace(strategy="delete")


def exchanged(mean, **options):
    return effect(mean, **options)._replace(strategy="swap")


@pytest.mark.parametrize(("removal", "exchange", "state", "strategy"), [
    (removed(0.4), exchanged(0.0), "confirmed", "delete"),
    (removed(0.0, spread=0.02), None, "unconfirmed", "delete"),  # nothing but a removal: a redundant cue moves nothing
    (removed(0.0, spread=0.02), "all read alike", "unconfirmed", "delete"),
    (removed(0.0, spread=0.02), exchanged(0.0, spread=0.02), "refuted", "swap"),
    (removed(0.0, spread=0.02), exchanged(0.74), "confirmed", "swap"),
    (removed(0.0, spread=0.02), exchanged(0.25, spread=0.02), "suspected", "swap"),  # sure, but a part of the object?
    (removed(0.0, spread=0.02), exchanged(0.4, spread=2.0), "suspected", "swap"),
    (removed(0.1, spread=0.5), exchanged(0.0, spread=0.02), "suspected", "delete"),
])  # fmt: skip
def test_only_a_swap_that_moves_nothing_refutes_a_place(removal, exchange, state, strategy):
    exchanges = {} if exchange is None else {0: exchange}
    (judged,) = reach_verdicts([SUSPECT], [removal], 0.05, exchanges=exchanges)
    assert (judged.state, judged.strategy) == (state, strategy)
    assert judged.note == (exchange if exchange == "all read alike" else "")
    (by_swap,) = reach_verdicts([SUSPECT], [exchanged(0.0, spread=0.02)], 0.05)
    assert by_swap.state == "refuted"


@pytest.mark.parametrize(("mean", "state"), [(0.17, "confirmed"), (0.13, "suspected"), (0.0, "refuted")])
def test_beside_annotated_evidence_an_exchange_takes_fifteen_points(mean, state):
    beside = replace(SUSPECT, beside_evidence=True)
    exchange = {0: exchanged(mean, spread=0.02)}
    (judged,) = reach_verdicts([beside], [removed(0.0, spread=0.02)], 0.05, exchanges=exchange)
    assert (judged.state, judged.strategy) == (state, "swap")
    nearest = nearest_test([beside], [removed(-0.1, spread=0.02)], 0.05, exchanges=exchange)
    if mean:
        assert nearest is not None
        assert nearest.bound == pytest.approx(0.15)
    # Without annotations, it is what any place takes.
    (judged,) = reach_verdicts([SUSPECT], [removed(0.0, spread=0.02)], 0.05, exchanges=exchange)
    assert judged.state == ("suspected" if mean else "refuted")


def test_an_exchange_counts_as_a_test_whether_it_was_made_or_not():
    # Signs of eight samples: the least p-value is 1/256, which Holm's correction multiplies by the number of tests.
    few = Effect(np.full(8, 0.4) + 0.01 * np.arange(8), np.zeros(8), "inpaint")
    for exchanges in ({}, {0: ""}, {0: few}, {0: exchanged(0.0), 1: ""}):
        judged, other = reach_verdicts([SUSPECT] * 2, [few, removed(0.0)], 0.05, exchanges=exchanges)
        assert judged.intervention is not None
        assert judged.intervention.p_value == pytest.approx((2 + len(exchanges)) / 256)
        assert judged.state == "confirmed"
        assert other.state != "confirmed"


def test_what_is_unsure_stays_suspected():
    assert states(effect(0.1, spread=0.5)) == ["suspected"]


def test_a_test_that_passes_is_not_enough_where_the_interval_reaches_0():
    # The test has one side, the interval two: between them lies a p-value of 0.025 to 0.05.
    unsure = effect(0.2, spread=0.47)
    (judged,) = reach_verdicts([SUSPECT], [unsure], 0.05)
    assert judged.intervention is not None
    assert judged.intervention.p_value < 0.05
    assert judged.intervention.interval[0] < 0
    assert judged.state == "suspected"


def test_the_evidence_is_the_paired_difference():
    wanted = effect(0.4, control=0.2)
    (judged,) = reach_verdicts([SUSPECT], [wanted], 0.05)
    assert judged.intervention is not None
    assert judged.intervention.effect == pytest.approx(0.4)
    assert judged.intervention.reference == pytest.approx(0.2)
    assert judged.intervention.interval[0] < 0.4 < judged.intervention.interval[1]
    assert judged.intervention.p_value == pytest.approx(sign_flip_test(-(wanted.change - wanted.control), 0.0))
    assert judged.relevance == SUSPECT.relevance


def test_more_suspects_need_more_evidence():
    # Signs of eight samples: the least p-value is 1/256, which Holm's correction over twenty multiplies.
    few = Effect(np.full(8, 0.3) + 0.01 * np.arange(8), np.zeros(8))
    assert states(few) == ["confirmed"]
    assert states(*[few] * 20) == ["suspected"] * 20


def test_what_cannot_be_tested_says_so():
    refused, few, absent = reach_verdicts(
        [SUSPECT] * 3, ["all read alike", effect(0.4, samples=4), Effect(np.full(9, np.nan), np.zeros(9))], 0.05
    )
    assert (refused.state, refused.note) == ("suspected", "all read alike")
    assert (few.state, few.note) == ("suspected", "too few samples to test it: 4")
    assert (absent.state, absent.note) == ("suspected", "too few samples to test it: 0")


def merged(previous, current):
    """The facts of an evaluation and those that are news, as a monitor comes to them."""
    facts = fold(carry_over(previous, current))
    return facts, news_among(previous, facts)


def test_what_goes_on_keeps_since_when():
    def at(name, epoch, target="label", **changes):
        scope = OVERALL if name == "overall" else Scope("class", name)
        return replace(SUSPECT, scope=scope, epoch=epoch, first_epoch=epoch, target=target, **changes)

    first, new = merged([], [at("overall", 0), at("a", 0)])
    assert new == first
    assert len(first) == 1
    second, new = merged(first, [at("overall", 1), at("b", 1), at("overall", 1, target="predicted")])
    assert [(each.target, each.scope.name, each.first_epoch) for each in unfold(second)] == [
        ("label", "", 0), ("predicted", "", 1), ("label", "b", 1),
    ]  # fmt: skip
    assert [len(each.history) for each in unfold(second)] == [2, 1, 1]
    assert new == []  # a class that joins is no news
    third, new = merged(second, [at("overall", 2, state="refuted"), at("a", 2)])
    assert [(str(each.scope), each.state) for each in unfold(third)] == [
        ("class a", "suspected"), ("overall", "refuted"),
    ]  # fmt: skip
    assert new == []
    fourth, new = merged(third, [at("overall", 3, state="refuted")])
    assert new == fourth  # all of it is refuted now
    for state in ("refuted", "unconfirmed"):
        assert merged([], [at("b", 3, state=state)])[1] == []  # nobody had heard of it


def test_the_states_of_a_fact_are_those_in_a_row_of_the_same_samples():
    def facts(previous, state, **changes):
        return carry_over(previous, [replace(SUSPECT, state=state, **changes)])

    first = facts([], "confirmed")
    assert first[0].states == ("confirmed",)
    # An older record knows no more than the last state.
    assert facts([replace(SUSPECT, state="confirmed")], "confirmed")[0].states == ("confirmed", "confirmed")
    # Whether the maps suspect what lies outside the annotation, too, is another kind, and the same fact.
    second = facts(first, "suspected", kind="reliance_outside_annotation")
    assert second[0].states == ("confirmed", "suspected")
    assert len(second[0].history) == 1
    assert facts(second, "confirmed")[0].states == ("confirmed", "suspected", "confirmed")
    assert facts(second, "confirmed", scope=Scope("class", "a"))[0].states == ("confirmed",)
    assert facts(facts(second, "confirmed", kind="other"), "confirmed")[0].states == ("confirmed",)


def test_tokens_and_regions_are_told_apart_by_name_and_places_are_not():
    tokens = [replace(SUSPECT, kind="suspicious_token", where=word) for word in ("x", "y")]
    assert merged(tokens[:1], tokens)[1] == [replace(tokens[1], history=(tokens[1].effect,), states=("suspected",))]
    places = [replace(SUSPECT, kind="focus_at_position", where=word) for word in ("top left", "top")]
    assert merged(places[:1], places[1:])[1] == []
