"""Odd batches at random under guidance: no run ended after its first step, and nothing misread in silence.

Every case wraps the same training set in another form, and may spoil it. What must come of it is known: what is wrong
in the first batch is refused before the first step, a sample that is spoiled later goes unguided, and everything else
trains as the plain form does, to the bit. `LRPTRAIN_FUZZ=500` runs as many cases.
"""

import os
import random
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from guided import annotated_data, guidance, sgd_module, weights
from setting import trainer, vit
from test_odd_batches import FORMS, IDS, MASKS, MISREAD, columns
from torch.utils.data import DataLoader

from lrptrain.batch import read_batch
from lrptrain.batch.annotations import IGNORED

CASES = int(os.environ.get("LRPTRAIN_FUZZ", "6"))
SIZE = 5
FIRST = range(SIZE)


# Labels that the user's own loss cannot read end a training without guidance, too. Of several regions, guidance takes
# the first, which is right for equal colours.
WRONG_MASKS = [name for name in MISREAD if "label" not in name and name not in ("one-hot", "colours")]


def plain_rows() -> list[dict[str, Any]]:
    given = annotated_data(3 * SIZE, dtype=torch.float32)
    return [{name: column[i] for name, column in given.items()} for i in range(3 * SIZE)]


def train(folder: Any, rows: list[dict[str, Any]], form: Any, **options: Any) -> Any:
    """The weights after three batches, and the guidance."""
    pl_module = sgd_module(vit())

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        contract = read_batch(batch)
        image = next(contract[name] for name in ("image", "pixel_values") if name in contract)
        return F.cross_entropy(self.net(image.float()), contract["label"])

    type(pl_module).training_step = training_step
    guided = guidance(**{"on_error": "warn", "model": "net", **options})
    loader: Any = DataLoader(rows, batch_size=SIZE, collate_fn=lambda some: form(columns(some)))  # type: ignore[arg-type]
    trainer(folder, guided, max_epochs=1).fit(pl_module, loader)
    return weights(pl_module.net), guided


@pytest.mark.parametrize("seed", range(CASES))
def test_odd_batches(seed, tmp_path):
    choose = random.Random(seed)
    form, mask, ids = (choose.choice(list(table)) for table in (FORMS, MASKS, IDS))
    what = choose.choice(["fine", "spoiled", "misread"])
    rows = [{**row, "mask": MASKS[mask](row["mask"]), "sample_id": IDS[ids](i)} for i, row in enumerate(plain_rows())]
    expected_rows = plain_rows()
    spoiled = -1
    if what == "spoiled" and mask != "bool":
        spoiled = choose.randrange(len(rows))
        rows[spoiled]["mask"] = torch.full_like(rows[spoiled]["mask"], 3)
        expected_rows[spoiled]["mask"] = torch.full_like(expected_rows[spoiled]["mask"], IGNORED)
    misread = choose.choice(WRONG_MASKS)
    if what == "misread":
        rows = [{**row, **MISREAD[misread](row)} for row in rows]
    case = f"{form=} {mask=} {ids=} {what=} {spoiled=} {misread=}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if what == "misread" or spoiled in FIRST:
            with pytest.raises(ValueError, match=r"mask|regions|image"):
                train(tmp_path, rows, FORMS[form])
            return
        found, guided = train(tmp_path, rows, FORMS[form])
        expected, _ = train(tmp_path, expected_rows, dict)
    told = [str(each.message) for each in caught if "RelevanceGuidance" in str(each.message)]
    assert guided.failures == 0, (case, told)
    assert guided.left_out == len(told) == (spoiled >= 0), (case, told)
    for name, x in expected.items():
        assert torch.equal(found[name], x), (case, name)
