"""What does an evaluation of the monitor cost, part by part, in samples of training? See README.md.

    .venv/bin/python -m experiments.speed.monitor --write

On a CPU times are those of the process's own work (CPU seconds of its threads), so that other work counts little; on a
GPU (`--device cuda`) wall-clock times, until all that was asked of the GPU is done. Each is set over the
time of training steps on as many samples, taken before and after it in the same process.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.records import KEY, stamped
from experiments.speed.cells import Inputs
from experiments.speed.run import bert_base, vit_small
from experiments.speed.works import placed
from experiments.table import markdown, write_between
from lrptrain.batch import Sample, collate, model_inputs
from lrptrain.loggers import write_record
from lrptrain.monitor.class_maps import compute_class_maps
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.drawing import choose_displayed
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.evaluator import Evaluator, ExplanationConfig
from lrptrain.monitor.gathering import gather_inputs, ids_to_draw
from lrptrain.monitor.judgement import Tests
from lrptrain.monitor.proving import examples_of
from lrptrain.monitor.record_builder import RecordBuilder
from lrptrain.relevance.output.outputs import read_logits

HERE = Path(__file__).resolve().parent
CLASSES = 10
RIGHT = 0.8  # share of the samples that the model reads as their label
BARE = "without annotations"
"""How the title of a model ends whose samples have none."""
START, END = "<!-- monitor -->", "<!-- end of monitor -->"
Model = tuple[nn.Module, Callable[[int], Inputs]]


def vit_tiny() -> Model:
    """ViT-Ti/16 at 224."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(patch_size=16, embed_dim=192, depth=12, num_heads=3, num_classes=CLASSES)
    return model, lambda batch: torch.randn(batch, 3, 224, 224)


def vit_tiny_with_a_shortcut() -> Model:
    """ViT-Ti/16 at 224 that has learned to read the colour of a corner, in 80 steps: its findings are confirmed."""
    model, _ = vit_tiny()
    generator = torch.Generator().manual_seed(0)
    colours = 1.5 * torch.randn(CLASSES, 3, 1, 1, generator=generator)

    def images_of(labels: Tensor) -> Tensor:
        images = torch.randn(len(labels), 3, 224, 224, generator=generator)
        images[:, :, :48, :48] += colours[labels]
        return images

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(80):
        labels = torch.randint(CLASSES, (16,), generator=generator)
        nn.functional.cross_entropy(model(images_of(labels)), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, lambda batch: images_of(torch.randint(CLASSES, (batch,), generator=generator))


def vit_tiny_on_scenes() -> Model:
    """ViT-Ti/16 at 224 on images that differ in light and in detail, as photographs do: both are tested."""
    model, _ = vit_tiny()
    generator = torch.Generator().manual_seed(0)

    def images_of(batch: int) -> Tensor:
        coarse, ramps, strengths = (torch.randn(batch, *x, generator=generator) for x in ((3, 7, 7), (3, 2, 2), (1,)))
        scenes = [nn.functional.interpolate(x, (224, 224), mode="bilinear") for x in (coarse, ramps)]
        noise = torch.randn(batch, 3, 224, 224, generator=generator)
        return scenes[0] + scenes[1] + strengths.exp()[:, :, None, None] * noise

    return model, images_of


def of_ten_classes(make: Callable[[], Model]) -> Model:
    """A model of the other experiments, with as many classes as here."""
    model, inputs_of = make()
    name, head = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    model.set_submodule(name, nn.Linear(head.in_features, CLASSES))
    return model, inputs_of


MODELS: dict[str, Callable[[], Model]] = {
    "ViT-Ti/16, 224 px": vit_tiny,
    "ViT-Ti/16, with a shortcut": vit_tiny_with_a_shortcut,
    "ViT-Ti/16, on scenes": vit_tiny_on_scenes,
    "ViT-Ti/16, without annotations": vit_tiny,
    "ViT-Ti/16, on scenes, without annotations": vit_tiny_on_scenes,
    "ViT-S/16, 224 px": lambda: of_ten_classes(vit_small),
    "BERT-base, 128 tokens": lambda: of_ten_classes(bert_base),
}


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of some work, or on a GPU seconds until it is done, and what it returns."""
    started = now()
    result = work()
    return now() - started, result


def now() -> float:
    """What the clock says; a GPU must have been used before it counts as one."""
    if not torch.cuda.is_initialized():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def samples_of(
    model: nn.Module, inputs_of: Callable[[int], Inputs], count: int, annotated: bool = True
) -> list[Sample]:
    """Samples, with an annotation or without, of which the model reads the share `RIGHT` as their label.

    The bias of the head is set so that its predictions differ: without that an intervention has nothing to swap.
    """
    inputs = inputs_of(count)
    tensors = inputs if isinstance(inputs, dict) else {"image": inputs}
    samples = [Sample(i, 0, {name: values[i] for name, values in tensors.items()}) for i in range(count)]
    logits = torch.cat([logits_of(model, samples[start : start + 16]) for start in range(0, count, 16)])
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        head.bias -= logits.mean(0).to(head.bias.device)
    predicted = (logits - logits.mean(0)).argmax(1)
    wrong = torch.rand(count, generator=torch.Generator().manual_seed(1)) > RIGHT
    labels = torch.where(wrong, (predicted + 1) % CLASSES, predicted).tolist()
    return [
        replace(sample, label=label, tensors=sample.tensors | (annotation_of(sample) if annotated else {}))
        for sample, label in zip(samples, labels, strict=True)
    ]


@torch.no_grad()
def logits_of(model: nn.Module, samples: Sequence[Sample]) -> Tensor:
    """The logits of some samples, on the CPU."""
    inputs = placed(model_inputs(model, collate(samples)), next(model.parameters()).device)
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return read_logits(output, len(samples)).cpu()


def annotation_of(sample: Sample) -> dict[str, Tensor]:
    """The evidence: a quarter of the image, or of the text."""
    if "image" in sample.tensors:
        mask = torch.zeros(sample.tensors["image"].shape[-2:], dtype=torch.uint8)
        mask[56:168, 56:168] = 1
        return {"mask": mask}
    rationale = torch.zeros_like(sample.tensors["input_ids"])
    rationale[32:64] = 1
    return {"rationale": rationale}


def training(model: nn.Module, samples: Sequence[Sample]) -> Callable[[], None]:
    """A step of training: forward pass, backward pass, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    batch = collate(samples)
    place = next(model.parameters()).device
    inputs = placed(model_inputs(model, batch), place)
    labels = torch.tensor([sample.label for sample in samples], device=place)

    def step() -> None:
        model.train()
        output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
        nn.functional.cross_entropy(read_logits(output, len(samples)), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()

    return step


@dataclass
class Meter:
    """Sets what work takes over what training takes at the same time.

    A machine that does other work is slower at times, in its memory if not in its cores: so a step of training is
    timed before and after each piece of work.

    Attributes:
        step: A step of training.
        per_step: The number of samples of a step.
        samples: The number of samples that are evaluated.
    """

    step: Callable[[], None]
    per_step: int
    samples: int

    def __post_init__(self) -> None:
        self.last_step = seconds(self.step)[0]

    def ratio(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """The CPU seconds of some work over those of training on as many samples, and what the work returns."""
        spent, result = seconds(work)
        before = self.last_step
        self.last_step = seconds(self.step)[0]
        return spent / (before + self.last_step) * 2 * self.per_step / self.samples, result


def evaluation_parts(
    model: nn.Module, samples: Sequence[Sample], arguments: argparse.Namespace, meter: Meter
) -> dict[str, float]:
    """Every part of one evaluation over training on as many samples, and how many regions were tested."""
    config = ExplanationConfig(arguments.method, class_maps=arguments.class_maps)
    parts: dict[str, float] = {}
    label_only = Evaluator(model, replace(config, targets=("label",)), arguments.device)
    parts["maps for the label"], _ = meter.ratio(lambda: label_only.evaluate(samples))
    both = Evaluator(model, config, arguments.device)
    total, _ = meter.ratio(lambda: both.evaluate(samples))
    parts["maps for the predicted class"] = total - parts["maps for the label"]
    drawn = ids_to_draw(samples, arguments.pictures)
    all_maps, explained = meter.ratio(lambda: both.evaluate(samples, drawn=drawn))
    displayed: list[ExplainedSample] = choose_displayed(explained, arguments.pictures)
    names = [str(number) for number in range(CLASSES)]
    class_maps = compute_class_maps(both, displayed, names)
    parts["maps of further classes"] = all_maps - total
    builder = RecordBuilder(class_names=names)
    inputs = gather_inputs(list(samples))
    explained = sorted(explained, key=lambda each: (each.sample.label, each.sample.sample_id))
    evaluation = Evaluation(explained, inputs.samples)
    language = builder.language((), model)
    mine = inputs.local_rows
    tests = Tests(both, evaluation, mine, MonitorConfig(), language)
    parts["tests of cues"], judgement = meter.ratio(lambda: tests.judge(1.0))
    parts["statistics"], record = meter.ratio(lambda: builder.build(evaluation, (), judgement))
    parts["proofs"], record = meter.ratio(lambda: builder.prove(record, judgement, examples_of(judgement), ()))
    record = replace(record, class_maps=class_maps)
    parts["drawing"], record = meter.ratio(lambda: builder.draw(record, displayed, (), evaluation))
    with tempfile.TemporaryDirectory() as folder:
        first, _ = meter.ratio(lambda: write_record(Path(folder), record))
        # The samples themselves are written once in a run, by its first evaluation.
        parts["writing"], _ = meter.ratio(lambda: write_record(Path(folder), replace(record, epoch=1, step=1)))
    return {
        **parts,
        "sum": sum(parts.values()),
        "once": max(first - parts["writing"], 0.0),
        "cues": len(judgement.judged),
        "passes": judgement.passes / len(explained),
        "misread": float(np.mean([x.predicted != x.sample.label for x in explained])),
    }


def measure(title: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Every part over training steps on as many samples; the median over rounds."""
    torch.manual_seed(0)
    model, inputs_of = MODELS[title]()
    model.eval().to(arguments.device)
    samples = samples_of(model, inputs_of, arguments.samples, annotated=not title.endswith(BARE))
    step = training(model, samples[:16])
    step()
    evaluation_parts(model, samples[:16], arguments, Meter(step, 16, 16))
    meter = Meter(step, min(16, len(samples)), len(samples))
    rounds = [evaluation_parts(model, samples, arguments, meter) for _ in range(arguments.rounds)]
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def table(cells: dict[str, dict[str, float]]) -> str:
    """A row per part, a column per model."""
    names = dict.fromkeys(name for cell in cells.values() for name in cell if name != KEY)
    rows = []
    for name in names:
        form = {"samples": "{:.0f}", "cues": "{:.0f}", "passes": "{:.1f}", "misread": "{:.0%}"}.get(name, "{:.2f}")
        titles = {
            "sum": "**one monitored sample**",
            "cues": "cues tested",
            "passes": "forward passes of their tests",
            "misread": "of them misread",
        }
        titles["once"] = "once in a run: writing the samples"
        rows.append(
            {"part": titles.get(name, name)}
            | {title: form.format(times[name]) if name in times else "-" for title, times in cells.items()}
        )
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--method", default="attnlrp")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--class-maps", type=int, default=ExplanationConfig.class_maps)
    parser.add_argument("--pictures", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    path = HERE / "results" / f"monitor_{arguments.device}.json"
    cells = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for title in arguments.models:
        cells[title] = stamped({"samples": arguments.samples, **measure(title, arguments)})
        print(title, json.dumps(cells[title]), flush=True)
        if arguments.write or arguments.device != "cpu":
            path.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
    text = table(cells)
    print(text)
    if arguments.write and arguments.device == "cpu":
        write_between(HERE / "README.md", text, START, END)


if __name__ == "__main__":
    main()
