from collections.abc import Sequence

import numpy as np
from examples import finding

from lrptrain.findings import Candidate, Effect
from lrptrain.intervention import Region
from lrptrain.monitor.exchange import exchange_places


def test_places_that_a_removal_did_not_confirm_are_exchanged_and_no_others():
    rows = np.arange(20)
    strong = Effect(np.linspace(0.4, 0.6, 20), np.zeros(20), "inpaint")
    none = Effect(np.linspace(-0.01, 0.01, 20), np.zeros(20), "inpaint")
    tests: list[tuple[Region, Effect | str]] = [
        (Region("patches", (3,)), strong),  # confirmed
        (Region("patches", (5,)), none),
        (Region("place", -1), none._replace(strategy="delete")),
        (Region("token", 7), none._replace(strategy="delete")),  # stands elsewhere in every text
        (Region("outside"), none._replace(strategy="swap")),
        (Region("patches", (8,)), "failed"),
    ]
    candidates = [Candidate(finding(), region, rows) for region, _ in tests]
    effects = [effect for _, effect in tests]
    asked: list[Region] = []

    def intervene_on(places: Sequence[Candidate]) -> list[Effect | str]:
        asked.extend(each.region for each in places)
        return [strong._replace(strategy="swap"), "all read alike"]

    exchanges = exchange_places(candidates, effects, intervene_on, 0.05, 0.95)
    assert asked == [Region("patches", (5,), exchanged=True), Region("place", -1, exchanged=True)]
    assert exchanges == {0: "", 1: strong._replace(strategy="swap"), 2: "all read alike"}
