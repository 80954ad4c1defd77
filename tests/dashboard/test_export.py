"""What the filters leave, as CSV."""

import csv
import io

import numpy as np
from browsing import Visit, served

from lrptrain.loggers import EpochRecord, read_events, read_samples, write_record

IMAGES, TEXTS = "relevance/run", "relevance/texts"


def saved(page, button):
    with page.expect_download() as download:
        page.click(button)
    return download.value.suggested_filename, download.value.path().read_bytes()


def test_the_table_has_what_the_filters_leave_in_their_order(browser, recorded):
    rows = read_samples(recorded / IMAGES, 2)
    chosen = [i for i, label in enumerate(rows["label"]) if label == "cat"]
    chosen.sort(key=lambda i: (-rows["label_energy_pointing_game"][i], i))
    with served(recorded) as address:
        visit = Visit(browser, address)
        fields = {"class": "cat", "sort": "-label_energy_pointing_game"}
        visit.view("samples", IMAGES, "#export-csv", **fields)
        name, content = saved(visit.page, "#export-csv")
        step = read_events(recorded / IMAGES)[-1]["step"]
        assert name == f"run_epoch_0002_step_{step:06}.csv"
        table = list(csv.DictReader(io.StringIO(content.decode())))
        assert [row["sample_id"] for row in table] == [str(rows["sample_id"][i]) for i in chosen]
        shares = [float(row["label_energy_pointing_game"]) for row in table]
        np.testing.assert_allclose(shares, [rows["label_energy_pointing_game"][i] for i in chosen], rtol=1e-5)
        assert {row["run"] for row in table} == {IMAGES}
        assert visit.complaints == []
        visit.page.close()


def test_commas_quotes_and_lines_survive(browser, tmp_path):
    odd = ['a "b", c', "line\nbreak", "ünït"]
    samples: dict[str, list] = {
        "sample_id": [1, 2, 3],
        "label": odd,
        "predicted": odd,
        "score": [0.5, float("nan"), -1.0],
        "map_label": [[1.0, 0.0, 0.0, 0.0]] * 3,
    }
    write_record(tmp_path / "run", EpochRecord(0, 0, samples=samples))
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        visit.view("samples", "run", "#export-csv")
        _, content = saved(visit.page, "#export-csv")
        table = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        assert [row["label"] for row in table] == odd
        assert [row["score"] for row in table] == ["0.5", "", "-1"]
        assert visit.complaints == []
        visit.page.close()
