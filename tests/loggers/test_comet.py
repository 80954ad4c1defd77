import json
import zipfile

import numpy as np
import pytest
from examples import finding

from lrptrain.loggers import EpochRecord, Highlight, Picture, is_logger, send, send_scalars

RECORD = EpochRecord(
    epoch=3,
    step=7,
    scalars={"relevance/epg": 0.5, "relevance/epg_per_class/猫 & dog": 0.25},
    samples={"sample_id": [17, "b"], "label": ["cat", "?"], "predicted": ["cat", "dog"]},
    pictures=[Picture(17, "digit 17", np.full((170, 180, 3), (0, 255, 0), np.uint8))],
    texts=[Highlight("t", "label 0", "<b>good</b>", "**good**")],
    findings=[finding()],
)


def test_an_offline_experiment_has_scalars_pictures_texts_and_tables(tmp_path):
    comet = pytest.importorskip("comet_ml")
    experiment = comet.OfflineExperiment(
        project_name="relevance", offline_directory=str(tmp_path), display_summary_level=0, log_code=False
    )
    assert is_logger(experiment)
    send_scalars(experiment, RECORD)
    send(experiment, RECORD)
    experiment.end()
    (path,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(path) as archive:
        messages = [json.loads(line) for line in archive.open("messages.json")]
        metrics = [each["payload"]["metric"] for each in messages if each["type"] == "metric_msg"]
        files = [each["payload"] for each in messages if each["type"] == "file_upload"]
        named = {
            parameters.get("figName") or parameters.get("fileName"): archive.read(each["file_path"])
            for each in files
            for parameters in [each["additional_params"]]
        }
    points = {
        each["metricName"]: (each["metricValue"], each["step"], each["epoch"])
        for each in metrics
        if not each["metricName"].startswith("sys.")  # the machine's, which Comet adds
    }
    assert points == {key: (value, 7, 3) for key, value in RECORD.scalars.items()}
    assert b"<h2>label 0</h2>\n<b>good</b>" in named["relevance/highlights/epoch_0003_step_000007.html"]
    rows = named["relevance/samples/epoch_0003_step_000007.csv"].decode().splitlines()
    assert [row.replace('"', "") for row in rows][:2] == ["sample_id,label,predicted,correct", "17,cat,cat,True"]
    assert named["relevance/findings_table/epoch_0003_step_000007.csv"].startswith(b"verdict")
    assert "relevance/overlays/17" in named
