import io
import json
import re
import warnings

import mlflow
import numpy as np
import pytest
from examples import finding
from PIL import Image

from lrptrain import loggers
from lrptrain.findings.proof import Proof, ProvenSample
from lrptrain.loggers import EpochRecord, Highlight, LoggedMetric, MLflowRun, Picture, send, send_scalars

PIXELS = np.full((170, 180, 3), (0, 255, 0), np.uint8)
CLASSES = LoggedMetric(("per_class/*",), "Classes", "Classes")
PER_CLASS = {f"relevance/per_class/{name}": float(i) for i, name in enumerate(("cats & dogs", "cats + dogs", "猫"))}
BUFFER = io.BytesIO()
Image.fromarray(PIXELS).save(BUFFER, format="PNG")
CHANGED = ProvenSample("t", "dog", 0.9, 0.2, 0.8, (("wet", "gone"), ("nose", "")), (("wet", ""), ("nose", "gone")))
PROVEN = [
    finding(proof=Proof("With that of another answer", "that of the same answer", (), png=BUFFER.getvalue())),
    finding(kind="phrase", proof=Proof("With that of another answer", "that of the same answer", (CHANGED,))),
]
RECORD = EpochRecord(
    epoch=3,
    step=7,
    scalars={"relevance/epg": 0.5, "relevance/epg_low": float("nan"), **PER_CLASS},
    samples={"sample_id": [17, "a/b: c"], "label": ["cat", "?"], "predicted": ["cat", "dog"], "map_label": [[1], [2]]},
    pictures=[Picture(17, "digit 17", PIXELS), Picture("a/b: c", "digit b", PIXELS)],
    texts=[Highlight("t", "label 0", "<b>good</b>", "**good**")],
    findings=PROVEN,
    new_findings=[finding()],
    metrics=[CLASSES],
)


@pytest.fixture(scope="module", params=["file", "sqlite"])
def written(request, tmp_path_factory):
    """Two epochs in a store of each kind, as a client finds them."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = {"file": folder.as_uri(), "sqlite": f"sqlite:///{folder}/mlflow.db"}[request.param]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, of SQLAlchemy
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = mlflow.MlflowClient(uri)
        experiment = client.create_experiment("relevance", artifact_location=(folder / "files").as_uri())
        run = MLflowRun(client, client.create_run(experiment).info.run_id)
        assert loggers.is_logger(run)
        for step in (7, 14):
            record = RECORD if step == 7 else EpochRecord(4, 14, {"relevance/epg": 0.25}, {"sample_id": [17]})
            send_scalars(run, record)
            send(run, record)
        yield client, client.get_run(run.run_id), folder / "files" / run.run_id / "artifacts"


def test_scalars_are_points_over_the_steps(written):
    client, run, _ = written
    points = client.get_metric_history(run.info.run_id, "relevance/epg")
    assert [(point.step, point.value) for point in points] == [(7, 0.5), (14, 0.25)]
    assert run.data.metrics["epoch"] == 4
    assert "relevance/epg_low" not in run.data.metrics  # nan, which MLflow stores as a 0 with a mark


def test_names_that_mlflow_refuses_stay_apart(written):
    _, run, _ = written
    names = {key: value for key, value in run.data.metrics.items() if "per_class" in key}
    assert sorted(names.values()) == [0, 1, 2]
    assert names["relevance/per_class/猫"] == 2
    refused = [key for key in names if names[key] < 2]
    assert all(re.fullmatch("relevance/per_class/cats _ dogs-[0-9a-f]{8}", key) for key in refused)


def test_pictures_have_steps_and_captions(written):
    _, run, files = written
    pictures = sorted((files / "images").glob("relevance~overlays~*.png"))
    names = [re.match(r"relevance~overlays~(.+?)\+step\+7\+", path.name) for path in pictures]
    assert [name and name[1].partition("-")[0] for name in names] == ["17", "a_b_ c"]
    pixels = np.asarray(Image.open(pictures[0]))
    assert np.all(pixels == (0, 255, 0), axis=-1).sum() == 170 * 180
    assert (pixels[176:] < 80).any()  # the caption
    assert run.data.tags["mlflow.loggedImages"] == "True"


def test_proofs_are_images_and_a_page(written):
    _, _, files = written
    (proof,) = (files / "images").glob("relevance~proofs~place+step+7+*.png")
    assert np.array_equal(np.asarray(Image.open(proof)), PIXELS)
    (page,) = (files / "relevance/proofs").iterdir()
    assert page.name == "epoch_0003_step_000007.html"
    assert page.read_text(encoding="utf-8").count("<h4>") == 1
    assert "wet" in page.read_text(encoding="utf-8")


def test_texts_and_new_findings_are_files(written):
    _, _, files = written
    (page,) = (files / "relevance/highlights").iterdir()
    assert page.name == "epoch_0003_step_000007.html"
    assert "<h2>label 0</h2>\n<b>good</b>" in page.read_text(encoding="utf-8")
    assert (files / "relevance/findings/epoch_0003_step_000007.md").read_text(encoding="utf-8") == f"- {finding()}"


def test_tables_are_those_of_the_last_evaluation(written):
    _, run, files = written
    tables = {
        name: json.loads((files / f"relevance/{name}.json").read_text()) for name in ("samples", "findings_table")
    }
    assert tables["samples"] == {"columns": ["sample_id"], "data": [[17]]}
    assert tables["findings_table"]["columns"][0] == "verdict"
    assert tables["findings_table"]["data"] == []
    listed = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert sorted(each["path"] for each in listed) == ["relevance/findings_table.json", "relevance/samples.json"]
