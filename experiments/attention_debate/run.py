"""Is attention an explanation, on transformers? See README.md.

    .venv/bin/python -m experiments.attention_debate.run

Every audit is a line in `results/audits.jsonl`; what was cut off goes on with what is missing. The tables are written
into this folder's README.md.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lrptrain
from experiments.attention_debate import report
from experiments.attention_debate.corpora import AUDITED, Texts, batches, drawn
from experiments.attention_debate.training import RUNS, trained
from experiments.parallel import Run, complete, load
from experiments.table import write_between
from lrptrain.auditing import AuditSettings, reference_scores, run_audit
from lrptrain.auditing.attention import content_of_map
from lrptrain.auditing.correlation import rank_association
from lrptrain.auditing.report import plot_tests
from lrptrain.batch import model_inputs

HERE = Path(__file__).resolve().parent

RESULTS = HERE / "results" / "audits.jsonl"
DEAR = ("integrated_gradients", "kernel_shap", "leave_one_out", "lime", "smoothgrad")
"""Methods of tens of passes per text; one of them is the reference itself."""
METHODS = {
    "tweets": tuple(name for name in lrptrain.methods() if name not in DEAR),
    "movies": (
        "attnlrp", "gamma_lrp", "generic_attention", "input_x_gradient", "random", "raw_attention", "rollout",
        "transformer_attribution",
    ),
}  # fmt: skip
"""That are audited: on movies, which cost far more, one of every family."""
WIDE = [
    "uniform", "perturbation", "leave_one_out", "randomisation", "gradient", "agreement", "permutation", "adversarial",
    "seeds",
]  # fmt: skip
"""Tests of all other methods."""
FOUGHT = {"tweets": ("raw_attention", "generic_attention", "attnlrp", "input_x_gradient"), "movies": ("raw_attention",)}
"""Methods whose maps weigh a token-wise model, and against which adversaries are trained: the dearest tests."""
TRAINING = {"tweets": 256, "movies": 96}
"""Training texts for the token-wise models and the adversaries."""
SETTINGS = {
    "tweets": AuditSettings(stages=2, adversary_steps=60, strengths=(0.03, 0.1)),
    "movies": AuditSettings(stages=1, search_steps=200, adversary_steps=30, strengths=(0.03, 0.1)),
}
UNLIMITED = 1e9


@dataclass(frozen=True)
class Audit:
    """One audit.

    Attributes:
        corpus: "tweets" or "movies".
        seed: Of the model that is audited.
        others: Seeds of the models that it is compared with.
    """

    corpus: str
    seed: int
    others: tuple[int, ...]

    @property
    def key(self) -> str:
        """Names it in the results."""
        return f"{self.corpus}, seed {self.seed}"


@dataclass(frozen=True)
class Training:
    """One model.

    Attributes:
        corpus: "tweets" or "movies".
        seed: Of the batches and the classifier.
    """

    corpus: str
    seed: int

    @property
    def key(self) -> str:
        """Names it in the results."""
        return f"{self.corpus}, seed {self.seed}"


SEEDS = {"tweets": 9, "movies": 3}
"""Models that are trained; the first three are audited, against all others."""
MODELS = [Training(corpus, seed) for corpus, models in SEEDS.items() for seed in range(models)]
TASKS = [
    Audit(corpus, seed, tuple(other for other in range(models) if other != seed))
    for corpus, models in SEEDS.items()
    for seed in range(3)
]


def train(task: Training) -> Run:
    """Train a model and save it."""
    torch.set_num_threads(1)
    trained(task.corpus, task.seed)
    return {}


def work(task: Audit) -> Run:
    """Audit a model: all methods by the tests that are cheap, then some of them by adversaries."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    corpus, model = task.corpus, trained(task.corpus, task.seed)
    audited = batches(drawn(corpus, 1, AUDITED[corpus]), corpus)
    given: dict[str, Any] = {
        "budget": UNLIMITED,
        "folder": RUNS / f"{corpus}_{task.seed}",
        "train_batches": batches(drawn(corpus, 0, TRAINING[corpus]), corpus, 16),
        "retrain": lambda number: trained(corpus, task.others[number - 1]),
        "settings": replace(SETTINGS[corpus], seeds=len(task.others)),
        "progress": lambda unit: print(f"{task.key}: {unit.title} {unit.seconds:.1f} s {unit.problem}", flush=True),
    }
    wide = run_audit(model, audited, METHODS[corpus], tests=WIDE, **given)
    deep = run_audit(model, audited, FOUGHT[corpus], tests=["frozen", "adversary"], **given)
    whole = replace(wide, units=(*wide.units, *deep.units))
    if task.seed == 0:
        (HERE / "figures" / corpus).mkdir(parents=True, exist_ok=True)
        plot_tests(whole, HERE / "figures" / corpus)
    between = references(model, audited)
    return {"corpus": corpus, "seed": task.seed, **report.numbers(whole), "between references": between}


def references(model: nn.Module, audited: Sequence[Texts]) -> dict[str, float]:
    """Kendall's tau of the two references with each other: the most that can be asked of attention."""
    taus = []
    for batch in audited:
        inputs = model_inputs(model, batch)
        gradient, left_out = (reference_scores(model, inputs, None, name) for name in ("gradient", "leave_one_out"))
        taus.append(rank_association(gradient, left_out, content_of_map(inputs, gradient.shape[1])))
    tau, p_value = (torch.cat([getattr(each, name) for each in taus]) for name in ("tau", "p_value"))
    return {"tau": float(tau.nanmean()), "share": float((p_value <= 0.05).double().mean())}


def saved_tables() -> str:
    """The tables of the audits that are there."""
    runs = load(RESULTS)
    return report.tables([runs[task.key] for task in TASKS if task.key in runs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tables-only", action="store_true", help="of the audits that are there")
    arguments = parser.parse_args()
    if not arguments.tables_only:
        complete(RUNS / "models.jsonl", MODELS, train, arguments.workers)
        complete(RESULTS, TASKS, work, arguments.workers)
    text = saved_tables()
    write_between(HERE / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
