"""How far are our maps from those of other libraries, on the same small random models in float64?

    .venv/bin/python -m experiments.peers.run

A library that is not installed has a row that says so (`pip install captum zennit lxt`). One JSON file in
`results/`; the table is written into this folder's README.md.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import lrptrain
from experiments.command import no_options
from experiments.records import save
from experiments.speed.peers import lxt_bert
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "peers.json"

SAMPLES, CLASSES, TARGET, STEPS = 3, 5, 2, 32
TEXT = {"vocab_size": 100, "max_position_embeddings": 40, "pad_token_id": 0}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
Inputs = Tensor | Mapping[str, Tensor]
Map = Callable[[nn.Module, Inputs], Tensor]
Result = dict[str, Any]


def images() -> Tensor:
    """Random images in float64."""
    return torch.randn(SAMPLES, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def tokens() -> dict[str, Tensor]:
    """Random texts of one length: some of the libraries know no padding."""
    ids = torch.randint(5, 90, (SAMPLES, 10), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def vit() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=CLASSES)


def convolutions() -> nn.Module:
    """Layers of which zennit and captum have the rules, one after the other."""
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
    return nn.Sequential(*first, nn.MaxPool2d(4), nn.Flatten(), nn.Linear(128, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def of_transformers(family: str, **options: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{family}Config")(**TEXT, **SIZES, **options, num_labels=CLASSES)
    config._attn_implementation = "eager"
    return getattr(transformers, f"{family}ForSequenceClassification")(config)  # type: ignore[no-any-return]


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "ViT (timm)": (vit, images),
    "convolutions": (convolutions, images),
    "BERT": (partial(of_transformers, "Bert"), tokens),
    "GPT-2": (partial(of_transformers, "GPT2"), tokens),
    "Llama": (partial(of_transformers, "Llama"), tokens),
}


def built(name: str) -> tuple[nn.Module, Inputs]:
    """A random model in float64, all of its weights and biases away from 0, and what it reads."""
    torch.manual_seed(0)
    model = MODELS[name][0]()
    for key, weight in model.named_parameters():
        is_scale = "norm" in key.lower() and key.endswith("weight")
        weight.data = is_scale + 0.15 * torch.randn(weight.shape)
    return model.double().eval(), MODELS[name][1]()


def ours(method: str, **options: Any) -> Map:
    """Our map of the input's own numbers; of a text, of its tokens."""

    def relevance(model: nn.Module, inputs: Inputs) -> Tensor:
        found = lrptrain.attribute(model, inputs, TARGET, method, **options)
        return found.input if isinstance(inputs, Tensor) and found.input is not None else found.scores

    return relevance


def summed(relevance: Tensor) -> Tensor:
    """Relevance of pixels over channels, or of words over their width."""
    return relevance.sum(1 if relevance.ndim == 4 else -1)


def start(model: nn.Module, inputs: Inputs) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Pixels or word embeddings, and the logits as a function of them."""
    if isinstance(inputs, Tensor):
        return inputs.clone().requires_grad_(), model
    embeddings = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()  # type: ignore[operator]
    mask = inputs["attention_mask"]
    return embeddings, lambda x: model(inputs_embeds=x, attention_mask=mask).logits


def captum(name: str, **options: Any) -> Map:
    def relevance(model: nn.Module, inputs: Inputs) -> Tensor:
        x, forward = start(model, inputs)
        method = getattr(import_module("captum.attr"), name)(forward)
        return summed(method.attribute(x, target=TARGET, **options)).detach()

    return relevance


def zennit(rule: str, first: tuple[str, list[str]] | None = None, of_logit: bool = False, **options: Any) -> Map:
    """One rule for all layers with weights, another, without some of its parameters, for the first."""

    def relevance(model: nn.Module, inputs: Inputs) -> Tensor:
        from zennit.attribution import Gradient
        from zennit.composites import SpecialFirstLayerMapComposite
        from zennit.types import Convolution, Linear

        rules = import_module("zennit.rules")
        assert isinstance(inputs, Tensor)
        kinds = (Convolution, Linear)
        ends = [] if first is None else [(kinds, getattr(rules, first[0])(zero_params=first[1]))]
        composite = SpecialFirstLayerMapComposite([(kinds, getattr(rules, rule)(**options))], ends)
        of_class = torch.eye(CLASSES).double()[[TARGET] * SAMPLES]
        begun = (lambda output: output * of_class) if of_logit else of_class
        with Gradient(model, composite) as attributor:
            _, found = attributor(inputs.clone().requires_grad_(), begun)
        return summed(found).detach()

    return relevance


class Interface(dict[str, Any]):
    """Attention functions by name, as transformers 5 asks for them; LXT leaves a dict."""

    get_interface = dict.get


def lxt(family: str) -> Map:
    """Input times gradient of a model whose classes LXT has patched: for good, so that these come last."""

    def relevance(model: nn.Module, inputs: Inputs) -> Tensor:
        if family == "bert":
            model = lxt_bert(model)
        else:
            patched = import_module(f"transformers.models.{family}.modeling_{family}")
            of_family = import_module(f"lxt.efficient.models.{family}")
            import_module("lxt.efficient").monkey_patch(patched, of_family.attnLRP)
            vars(patched)["ALL_ATTENTION_FUNCTIONS"] = Interface(vars(patched)["ALL_ATTENTION_FUNCTIONS"])
        x, forward = start(model, inputs)
        return summed(x * torch.autograd.grad(forward(x)[:, TARGET].sum(), x)[0]).detach()

    return relevance


class Pair(NamedTuple):
    """A map of ours and one of another library, and why the two may differ."""

    model: str
    method: str
    mine: Map
    peer: str
    theirs: Map
    why: str = ""


def named(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


ROUNDED = "captum rounds the weights of the steps to float32"
STABILISED = "zennit adds 1e-6 to denominators"
BY_STEPS = ours("integrated_gradients", steps=STEPS)
BY_CAPTUM = captum("IntegratedGradients", method="gausslegendre", n_steps=STEPS)
BY_RULES: list[tuple[dict[str, Any], str, Map]] = [
    ({"patch_rule": None}, "ZPlus", zennit("ZPlus")),
    ({"alpha": 2.0, "beta": 1.0, "patch_rule": None}, "AlphaBeta(2, 1)", zennit("AlphaBeta", alpha=2, beta=1)),
    ({"patch_rule": "wsquare"}, "ZPlus, first WSquare(zero_params=['bias'])", zennit("ZPlus", ("WSquare", ["bias"]))),
    ({"patch_rule": "flat"}, "ZPlus, first Flat", zennit("ZPlus", ("Flat", []))),
]
OF_WORDS = ours("attnlrp", embeddings="token")
PAIRS = [
    *(Pair(name, "input_x_gradient", ours("input_x_gradient"), "captum InputXGradient", captum("InputXGradient"))
      for name in MODELS),
    *(Pair(name, "integrated_gradients", BY_STEPS, f"captum IntegratedGradients, {STEPS} steps", BY_CAPTUM, ROUNDED)
      for name in ("ViT (timm)", "BERT")),
    Pair("convolutions", "epsilon_lrp", ours("epsilon_lrp"), "zennit Epsilon", zennit("Epsilon", of_logit=True)),
    *(Pair("convolutions", f"lrp, {named(options)}", ours("lrp", **options), f"zennit {peer}", theirs, STABILISED)
      for options, peer, theirs in BY_RULES),
    Pair("BERT", "attnlrp, embeddings='token'", OF_WORDS, "lxt AttnLRP", lxt("bert")),
    Pair("Llama", "attnlrp", ours("attnlrp"), "lxt AttnLRP", lxt("llama"), "the model's softmax is in float32"),
    Pair("GPT-2", "attnlrp, embeddings='token'", OF_WORDS, "lxt AttnLRP", lxt("gpt2")),
]  # fmt: skip


def difference(mine: Tensor, theirs: Tensor) -> float:
    """The largest relative L2 difference of a sample."""
    assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    return float(((mine - theirs).flatten(1).norm(dim=1) / theirs.flatten(1).norm(dim=1)).max())


def compared(pair: Pair, mine: Tensor) -> Result:
    """The row of one pair."""
    row = {"model": pair.model, "method": pair.method, "peer": pair.peer, "why": pair.why}
    try:
        row["version"] = version(pair.peer.partition(" ")[0])
        model, inputs = built(pair.model)
        return row | {"difference": difference(mine, pair.theirs(model, inputs))}
    except Exception as error:  # another library may refuse in any way
        return row | {"failure": f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"}


def table(rows: list[Result]) -> str:
    """A line for each pair."""
    versions = {row["peer"].partition(" ")[0]: row["version"] for row in rows if "version" in row}
    lines = [
        {
            "model": row["model"],
            "ours": f"`{row['method']}`",
            "peer": row["peer"],
            "difference": f"{row['difference']:.0e}" if row.get("difference") else "0" if "difference" in row else "-",
            "remark": row.get("failure", row["why"]),
        }
        for row in rows
    ]
    return ", ".join(f"{name} {number}" for name, number in versions.items()) + ".\n\n" + markdown(lines)


def main() -> None:
    no_options(__doc__)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mine = [pair.mine(*built(pair.model)) for pair in PAIRS]  # before LXT has patched anything
    rows = [compared(*pair) for pair in zip(PAIRS, mine, strict=True)]
    save(RESULTS, {"rows": rows}, indent=1)
    write_between(HERE / "README.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
