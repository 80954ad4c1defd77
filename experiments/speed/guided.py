"""What does a guided training step cost over a plain one, in time and memory? See README.md.

    .venv/bin/python -m experiments.speed.guided

Every cell is a process of its own and is saved in `results/`; a run that was cut off goes on with what is missing.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.speed.cells import Inputs, Work, apart, time_and_memory
from experiments.speed.run import MODELS
from experiments.speed.works import placed
from experiments.table import markdown, write_between
from lrptrain.guidance import guidance_loss
from lrptrain.guidance.evidence import at_tokens
from lrptrain.guidance.objective import Objective
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.attention import positive_mean_over_heads, rolled_out
from lrptrain.relevance.passes.interception import InterceptedForward, intercepted
from lrptrain.relevance.tokens.attention_layers import OWN

HERE = Path(__file__).resolve().parent

BATCH = 8
PLAIN, ANCHOR = "plain step (itself)", "robust_vit, RobustViT's way"
START, END = "<!-- guided -->", "<!-- end of guided -->"
ENERGY = {"energy": 1.0}
OBJECTIVES = {
    "energy, generic_attention": Objective(ENERGY),
    "energy, generic_attention, first order": Objective(ENERGY, first_order=True),
    "energy, attention_x_gradient": Objective(ENERGY, "attention_x_gradient"),
    "energy, input_x_gradient": Objective(ENERGY, "input_x_gradient"),
    "energy, attnlrp": Objective(ENERGY, "attnlrp"),
    "energy, transformer_attribution": Objective(ENERGY, "transformer_attribution"),
    "energy, transformer_attribution, first order": Objective(ENERGY, "transformer_attribution", first_order=True),
    "robust_vit, generic_attention, first order": Objective({"robust_vit": 1.0}, first_order=True),
    "rrr": Objective({"rrr": 1.0}),
    "consistency": Objective({"consistency": 1.0}),
    "consistency+energy, generic_attention": Objective({"consistency": 1.0, "energy": 1.0}),
}
OTHERS = [PLAIN, ANCHOR]


def run_model(model: nn.Module, inputs: Inputs) -> Tensor:
    """Logits as a training step gets them."""
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return getattr(output, "logits", output)


def labels_of(inputs: Inputs) -> Tensor:
    """Any class of each sample."""
    explained = _explained(inputs)
    return torch.arange(len(explained), device=explained.device) % 2


def evidence_of(inputs: Inputs) -> Tensor:
    """The middle of the image, or the first quarter of the text."""
    given = _explained(inputs)
    if given.ndim == 2:
        return (torch.arange(given.shape[1], device=given.device) < given.shape[1] // 4).long().expand_as(given)
    mask = torch.zeros(len(given), *given.shape[2:], dtype=torch.uint8, device=given.device)
    mask[:, given.shape[2] // 4 : -given.shape[2] // 4, given.shape[3] // 4 : -given.shape[3] // 4] = 1
    return mask


def _explained(inputs: Inputs) -> Tensor:
    return inputs["input_ids"] if isinstance(inputs, dict) else inputs


def plain_step(model: nn.Module, inputs: Inputs) -> None:
    """Forward, cross-entropy, backward, with the model's own (fused) attention."""
    F.cross_entropy(run_model(model, inputs), labels_of(inputs)).backward()
    model.zero_grad(set_to_none=True)


def guided_step(objective: Objective, model: nn.Module, inputs: Inputs) -> None:
    """The same with guidance, as the callback does it."""
    labels = labels_of(inputs)
    annotation = evidence_of(inputs)
    samples = len(labels)
    rows = torch.arange(samples)
    with intercepted(model, samples, objective.records(samples, samples), keeps_maps=objective.keeps_maps) as calls:
        loss = F.cross_entropy(run_model(model, inputs), labels)
    for name, term in objective.losses(calls[0], annotation, labels, rows).items():
        loss = loss + objective.weights[name] * term.total / term.count
    calls[0].let_go()
    loss.backward()
    model.zero_grad(set_to_none=True)


def published_step(model: nn.Module, inputs: Inputs) -> None:
    """As RobustViT's released code does it: one backward pass per block, detached, and another forward for the task."""
    labels = labels_of(inputs)
    with intercepted(model, len(labels), True) as calls:
        run_model(model, inputs)
    call: InterceptedForward = calls[0]
    recording = call.recording()
    explanation = Explanation(recording, labels, create_graph=True, first_order=True)
    maps = []
    for block in recording.blocks:
        (gradient,) = explanation.gradient([block])
        attention = recording.per_head(block, block.tensor)
        maps.append(positive_mean_over_heads(recording.per_head(block, gradient), attention))
    layers = recording.attention_layers.layers()
    rows = rolled_out(recording.pooling, layers, maps, normalize_rows=False)
    scores = recording.layout.content(rows[OWN])
    loss = guidance_loss(scores, at_tokens(evidence_of(inputs), recording.layout.grid), "robust_vit")
    (loss + F.cross_entropy(run_model(model, inputs), labels)).backward()
    model.zero_grad(set_to_none=True)


def step_of(name: str, model: nn.Module, inputs: Inputs) -> partial[None]:
    """The work of a row."""
    if name == PLAIN:
        return partial(plain_step, model, inputs)
    if name == ANCHOR:
        return partial(published_step, model, inputs)
    loss, _, method = name.partition(", ")
    objective = OBJECTIVES.get(name) or Objective({loss: 1.0}, method)
    return partial(guided_step, objective, model, inputs)


def cell(work: Work, base: Work, arguments: argparse.Namespace) -> dict[str, float]:
    """Ratio of time, bytes at the peak, and ratio of the operations in matrix products, which time cannot undercut."""
    found = time_and_memory(work, base, arguments.rounds, arguments.device)
    return {**found, "products": products(work) / products(base)}


def products(work: Work) -> int:
    """Floating point operations of its matrix products, convolutions and attention."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def measure(arguments: argparse.Namespace, path: Path) -> None:
    """Every missing cell."""
    cells: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for title, make in MODELS.items():
        model, inputs_of = make()
        model.to(arguments.device)
        torch.manual_seed(0)
        inputs = placed(inputs_of(BATCH), arguments.device)
        for name in (*OTHERS, *OBJECTIVES):
            key = f"{title} | {name}"
            if key in cells:
                continue
            work, base = step_of(name, model, inputs), partial(plain_step, model, inputs)
            cells[key] = apart(partial(cell, work, base, arguments), arguments.device, arguments.threads)
            path.write_text(json.dumps(cells, indent=0, sort_keys=True) + "\n", encoding="utf-8")
            print(key, cells[key], flush=True)


def table(cells: dict[str, dict[str, Any]]) -> str:
    """Time, matrix products and memory over a plain step."""
    rows = []
    for name in (*OTHERS, *OBJECTIVES):
        row = {"guidance": name}
        for title in MODELS:
            found, base = cells.get(f"{title} | {name}", {"error": "not measured"}), cells.get(f"{title} | {PLAIN}", {})
            failed = "error" in found
            row[f"{title}: time"] = "-" if failed else f"{found['time']:.2f}"
            row[f"{title}: products"] = "-" if failed else f"{found['products']:.2f}"
            row[f"{title}: memory"] = "-" if failed else f"{found['bytes'] / base['bytes']:.2f}"
        rows.append(row)
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tables-only", action="store_true", help="write the table of what is saved already")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # until the processes of the cells
    path = HERE / "results" / f"guided_{arguments.device}.json"
    path.parent.mkdir(exist_ok=True)
    if not arguments.tables_only:
        measure(arguments, path)
    text = table(json.loads(path.read_text(encoding="utf-8")))
    if arguments.device == "cpu":
        write_between(HERE / "README.md", text, START, END)
    print(text)


if __name__ == "__main__":
    main()
