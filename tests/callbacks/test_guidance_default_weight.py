"""Without a weight the guidance is as strong as the task's gradient allows."""

import pytest
from guided import annotated_data, by_hand, guidance, stepped, weights
from setting import vit
from test_guidance_gradients import assert_close
from test_guidance_options import SINGLE, logged

from lrptrain.callbacks import RelevanceGuidance
from lrptrain.guidance.strength import BOUND_EVERY_N_BATCHES, GRADIENT_SHARE


def norm(rows):
    return sum(x.square().sum() for x in rows.values()).sqrt().item()


def default(loss="energy", **options):
    return RelevanceGuidance(loss, **{"on_error": "raise", **options})


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_gradient_stays_within_its_share_of_the_tasks(factor, tmp_path, monkeypatch):
    """A loss that is a hundredth of `energy` is applied as it is, one that is a hundredfold is not."""
    from lrptrain.guidance.losses import MAP_LOSSES

    energy = MAP_LOSSES["energy"]
    monkeypatch.setitem(MAP_LOSSES, "energy", lambda scores, annotation: factor * energy(scores, annotation))
    columns, start = annotated_data(), weights(vit().double())
    free = by_hand(columns, weight=0.0, names="energy")
    found = stepped(tmp_path, default(), columns)
    share = norm({name: found[name] - free[name] for name in free}) / norm({n: free[n] - start[n] for n in free})
    if factor < 1:
        assert share < GRADIENT_SHARE
        assert_close(found, stepped(tmp_path, guidance(), columns), 0.0)
    else:
        assert share == pytest.approx(GRADIENT_SHARE, rel=SINGLE)


def test_what_is_applied_is_logged(tmp_path):
    rows = logged(default({"energy": 2.0, "l1": 1.0}, weight=0.5), annotated_data(), tmp_path)
    assert [row["guidance/applied_weight"] for row in rows] == [0.5]
    columns = annotated_data(6 * (BOUND_EVERY_N_BATCHES + 1))
    rows = logged(default(compare_every_n_batches=0), columns, tmp_path)
    applied = [row["guidance/applied_weight"] for row in rows]
    compared = [i for i, row in enumerate(rows) if "guidance/norm_ratio" in row]
    assert compared == [0, BOUND_EVERY_N_BATCHES]
    for i in compared:
        assert 0 < applied[i] <= 1
        assert rows[i]["guidance/total"] == pytest.approx(applied[i] * rows[i]["guidance/energy"])
    assert set(applied[:BOUND_EVERY_N_BATCHES]) == {applied[0]}
    assert "guidance/swap_distance" not in rows[0]


def test_weights_of_the_users_own_are_not_bounded():
    assert default().guidance.state.strength.bounded
    assert default("consistency+energy").guidance.state.strength.bounded
    assert not any(each.guidance.state.strength.bounded for each in (default(weight=1.0), default({"energy": 1.0})))
