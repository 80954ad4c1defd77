"""What processes do with sharded models, for tests/relevance/sharding; each function is given its rank."""

import gc
import random
import warnings
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from gloo import fully_sharded, layers, tensor_parallel, whole_state
from model_zoo import KINDS, select
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils.weak import TensorWeakRef

import lrptrain
from lrptrain.relevance.sharding.exchange import WeightExchange
from lrptrain.relevance.sharding.shards import computes_in_half, has_shards, is_sharded, own_name, shards_by_module
from lrptrain.relevance.sharding.whole_weights import meet, whole_weights

# Rules that read weights, by matrix products and by themselves; gradients at maps, at inputs, at several inputs; the
# attention alone; other answers of the model; a transform of torch.func.
METHODS = ["attnlrp", "lrp", "generic_attention"]
MORE = ["gamma_lrp", "transformer_attribution", "input_x_gradient", "rollout", "leave_one_out", "atb_norm"]
SHARDED = {
    "FSDP2 of 2": (2, lambda model: fully_sharded(model, 2)),
    "TP of 2": (2, lambda model: tensor_parallel(model, 2)),
    "TP 2 x FSDP2 2": (4, lambda model: tensor_parallel(model, 2, replicas=2)),
}
Difference = dict[str, tuple[float, float]]


def differences(rank: int, how: str, name: str, methods: list[str]) -> Difference:
    """The largest difference of each map, and of the logits, relative to the largest number and to eps."""
    warnings.simplefilter("ignore")
    found: Difference = {}
    kind = KINDS[name]
    # As many samples as no other process has.
    rows = slice(0, 1 + rank)
    for dtype in (torch.float64, torch.float32):
        whole, sharded = kind.build(True).to(dtype), SHARDED[how][1](kind.build(True).to(dtype))
        inputs = select(kind.inputs(4, dtype), rows)
        for method in methods if dtype == torch.float64 else METHODS[:1]:
            expected = lrptrain.attribute(whole, inputs, None, method)
            relevance = lrptrain.attribute(sharded, inputs, None, method)
            assert type(relevance.scores) is torch.Tensor
            found[f"{method} {dtype}"] = (
                _relative(relevance.scores, expected.scores),
                _relative(relevance.logits, expected.logits),
            )
    return found


def _relative(mine: torch.Tensor, expected: torch.Tensor) -> float:
    return float((mine - expected).abs().max() / expected.abs().max()) / torch.finfo(expected.dtype).eps


def as_trained(rank: int, how: str) -> list[dict[str, Any]]:
    """What a training leaves behind with a sharded model that is explained at every moment, and one without."""
    return [_trained(rank, how, explained) for explained in (True, False)]


def _trained(rank: int, how: str, explained: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    kind = KINDS["bert"]
    model = SHARDED[how][1](kind.build(True)).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    seed = rank if how.startswith("FSDP2") else 0  # under tensor parallel, all read the same batch
    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(seed)
    losses = []
    before = hooks_of(model)

    def explain() -> None:
        if explained:
            lrptrain.attribute(model, select(kind.inputs(4), slice(0, 1 + rank)), 1, "lrp")
            assert hooks_of(model) == before

    explain()  # before FSDP knows its root
    logits = model(**kind.inputs(3)).logits
    explain()  # while the graph of the step is there
    loss = logits.logsumexp(1).sum() - logits[:, seed % 2].sum()
    loss.backward()
    explain()  # while gradients are there
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    with torch.no_grad():
        losses.append(model(**kind.inputs(2)).logits.sum().item())
    explain()  # after an evaluation, FSDP leaves the weights of its root whole
    model(**kind.inputs(3)).logits.square().sum().backward()
    random_state = (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())
    return {"losses": losses, "random": random_state, "state": whole_state(model)}


def hooks_of(model: nn.Module) -> list[int]:
    """Which objects a model's hooks and forwards are."""
    attributes = ("_forward_hooks", "_forward_pre_hooks", "forward")
    return [id(vars(module).get(name)) for module in model.modules() for name in attributes]


def in_turns(rank: int) -> dict[str, Any]:
    """Processes that do different things, and one that fails, between collectives of their own."""
    warnings.simplefilter("ignore")
    kind = KINDS["vit"]
    whole, sharded = kind.build(True), fully_sharded(kind.build(True), 3)
    images = kind.inputs(3)
    explained = []
    failure = ""
    with whole_weights(sharded):
        try:
            for row in range(rank):  # none, one, two
                relevance = lrptrain.attribute(sharded, images[row : row + 1], 1, ["lrp", "rollout"][row])
                explained.append((row, relevance))
            if rank == 1:
                lrptrain.attribute(sharded, images, 1, "unknown")
        except ValueError as error:
            failure = type(error).__name__
        meet()
        everybody: list[Any] = [None] * 3
        dist.all_gather_object(everybody, rank)
        if rank == 0:
            explained.append((0, lrptrain.attribute(sharded, images[:1], 1, "lrp")))
    same = all(
        torch.equal(x.scores, lrptrain.attribute(whole, images[row : row + 1], 1, x.method).scores)
        for row, x in explained
    )
    return {"everybody": everybody, "same": same, "explained": len(explained), "failure": failure}


def most_held(rank: int) -> dict[str, int]:
    """The most bytes of whole weights that were alive at once, while a recording was explained."""
    warnings.simplefilter("ignore")
    kind = KINDS["bert"]
    model = fully_sharded(kind.build(True), 2)
    gathered: list[TensorWeakRef] = []
    most = 0
    round_of = WeightExchange.gather

    def counted(self: WeightExchange, number: int) -> list[torch.Tensor]:
        nonlocal most
        whole = round_of(self, number)
        gathered.extend(map(TensorWeakRef, whole))
        alive = [x for reference in gathered if (x := reference()) is not None]
        most = max(most, sum(x.untyped_storage().nbytes() for x in alive))
        return whole

    with mock.patch.object(WeightExchange, "gather", counted):
        recording = lrptrain.record(model, kind.inputs(2), differentiable=False)
        for method in ("attnlrp", "lrp", "generic_attention", "input_x_gradient"):
            recording.attribute(1, method)
    gc.collect()
    left = [x for reference in gathered if (x := reference()) is not None]
    modules = [sum(x.numel() * x.itemsize for x in m.parameters(recurse=False)) for m in model.modules()]
    return {"most": most, "gathers": len(gathered), "left": len(left), "largest module": max(modules)}


def refused(rank: int) -> dict[str, str]:
    """What is said of what cannot be had."""
    kind = KINDS["vit"]
    model = fully_sharded(kind.build(True), 2)
    images = kind.inputs(2)
    recording = lrptrain.record(model, images)
    attempts = {
        "create_graph": lambda: lrptrain.attribute(model, images, 1, create_graph=True),
        "recorded create_graph": lambda: recording.attribute(1, create_graph=True),
        "written": lambda: _written(model),
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(images).sum().backward()
    optimizer.step()
    attempts["lrp"] = lambda: recording.attribute(1, "lrp")
    attempts["input_x_gradient"] = lambda: recording.attribute(1, "input_x_gradient")
    messages = dict.fromkeys(attempts, "")
    for name, attempt in attempts.items():
        try:
            attempt()
        except Exception as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages


def _written(model: nn.Module) -> None:
    with whole_weights(model), torch.no_grad():
        next(layers(model).parameters()).zero_()


def of_transformers(rank: int, folder: str) -> dict[str, list[bool]]:
    """Whether a model that transformers shards by itself has DTensors, the maps of the whole one, and its hooks."""
    from transformers import LlamaForSequenceClassification as Llama
    from transformers.distributed import DistributedConfig

    configs = {"tensor parallel": DistributedConfig(tp_plan="auto"), "FSDP2": DistributedConfig(fsdp_size=2)}
    inputs = select(KINDS["llama"].inputs(3), slice(rank, rank + 1))
    expected = lrptrain.attribute(Llama.from_pretrained(folder).eval(), inputs, 1, "lrp").scores
    found = {}
    for name, config in configs.items():
        model = Llama.from_pretrained(folder, distributed_config=config).eval()
        before = hooks_of(model)
        scores = lrptrain.attribute(model, inputs, 1, "lrp").scores
        # In float32, up to the order in memory of what autograd keeps.
        close = torch.allclose(scores, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
        found[name] = [has_shards(model), close, hooks_of(model) == before]
    return found


def in_mixed_precision(rank: int) -> dict[str, Any]:
    """A model of which FSDP2 has left the root's parameters whole, in half precision."""
    warnings.simplefilter("ignore")
    kind = KINDS["vit"]
    images = kind.inputs(2)
    expected = lrptrain.attribute(kind.build(True), images, 1, "lrp")
    model = fully_sharded(kind.build(True), 2, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    with torch.no_grad():
        model(images)
    gathered = model.head.weight
    relevance = lrptrain.attribute(model, images, 1, "lrp")
    return {
        "gathered": gathered.dtype,
        "as before": model.head.weight is gathered,
        "same": torch.allclose(relevance.scores, expected.scores, rtol=1e-5, atol=1e-6 * float(expected.scores.max())),
        "half": computes_in_half(model),
        "name": own_name(model),
    }


def left_whole(rank: int) -> dict[str, Any]:
    """A model that FSDP2 shards as a single unit, which it leaves whole behind a forward pass."""
    kind = KINDS["vit"]
    model: Any = fully_shard(kind.build(True), mesh=init_device_mesh("cpu", (2,)))
    with torch.no_grad():
        model(kind.inputs(2))
    try:
        message = str(lrptrain.attribute(model, kind.inputs(2), 1, create_graph=True))
    except ValueError as error:
        message = str(error)
    return {"shards": has_shards(model), "sharded": is_sharded(model), "message": message}


def asked_apart(rank: int) -> list[torch.Tensor]:
    """The weights that a process asks for: the first none, the second one, the third two."""
    mesh = init_device_mesh("cpu", (3,))
    shards = [distribute_tensor(torch.full((4, 2), float(i)), mesh, [Shard(0)]) for i in range(2)]
    exchange = WeightExchange([[("weight", shard)] for shard in shards])
    weights = [exchange.gather(number)[0] for number in range(rank)]
    exchange.wait()
    return weights


def of_different_models(rank: int) -> str:
    """What a process is told that explains another model than the others."""
    mesh = init_device_mesh("cpu", (2,))
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(0)]))
    model = nn.ModuleDict({f"layer{rank}": layer})
    try:
        WeightExchange(shards_by_module(model)).gather(0)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return ""
