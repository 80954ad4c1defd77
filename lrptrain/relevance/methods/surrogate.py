"""Methods that fit a linear model to what the model answers on random subsets of the tokens (through captum)."""

import importlib
import warnings
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.rerun import answers_without
from lrptrain.relevance.registry import RelevanceMaps, method
from lrptrain.relevance.types import UnsupportedMethodError

# Of subsets with `on` tokens there: what the model answers, their number.
Answers = Callable[[Float[Tensor, "subsets tokens"]], Float[Tensor, " subsets"]]
_surrogate = partial(
    method, class_specific=True, signed=True, differentiable=False, full_precision=True, needs="answers"
)


@_surrogate(source="Ribeiro et al. 2016")
def lime(
    explanation: Explanation,
    samples: int = 256,
    kernel_width: float = 0.25,
    alpha: float = 1.0,
    baseline: float = 0.0,
    seed: int = 0,
    at_once: int = 64,
) -> RelevanceMaps:
    """LIME (Ribeiro, Singh, Guestrin 2016): weights of a ridge regression on random subsets of the tokens.

    Every token is there with probability 1/2; a subset counts exp(-d^2 / (2 kernel_width^2)), d its cosine distance
    from the whole. Tokens are taken away as `leave_one_out` does. It costs `samples` forward passes for every sample of
    the batch. Fewer subsets than several times the number of tokens (196 patches, say) give a map that is mostly noise.

    Args:
        explanation: The forward pass and the target.
        samples: Random subsets.
        kernel_width: Width of the kernel that weighs the subsets.
        alpha: Ridge penalty.
        baseline: Value of what is taken away.
        seed: Seed of the subsets, together with the sample's own content.
        at_once: Subsets in one forward pass.

    Raises:
        UnsupportedMethodError: If captum is not installed.
    """
    captum = _captum()

    def weights(answers: Answers, tokens: int) -> Tensor:
        kernel = captum.attr._core.lime.get_exp_kernel_similarity_function("cosine", kernel_width)
        surrogate = captum.attr.Lime(answers, interpretable_model=_Ridge(alpha), similarity_func=kernel)
        return _coefficients(surrogate, tokens, samples, at_once)

    return _fitted(explanation, weights, baseline, seed)


@_surrogate(source="Lundberg & Lee 2017")
def kernel_shap(
    explanation: Explanation, samples: int = 256, baseline: float = 0.0, seed: int = 0, at_once: int = 64
) -> RelevanceMaps:
    """KernelSHAP (Lundberg & Lee 2017): Shapley values of the tokens, by a regression on random subsets.

    Tokens are taken away as `leave_one_out` does. The scores sum to the explained logit minus that of an input without
    any token. It costs `samples` forward passes for every sample of the batch. Fewer subsets than several times the
    number of tokens (196 patches, say) give a map that is mostly noise.

    Args:
        explanation: The forward pass and the target.
        samples: Random subsets, the whole and the empty one among them.
        baseline: Value of what is taken away.
        seed: Seed of the subsets, together with the sample's own content.
        at_once: Subsets in one forward pass.

    Raises:
        UnsupportedMethodError: If captum is not installed.
    """
    captum = _captum()

    def weights(answers: Answers, tokens: int) -> Tensor:
        if tokens == 1:  # nothing is left to sample
            complete, empty = answers(torch.tensor([[1.0], [0.0]]))
            return torch.stack([complete - empty])
        surrogate = captum.attr.KernelShap(answers)
        surrogate.interpretable_model = _Ridge(0.0)
        return _coefficients(surrogate, tokens, samples, at_once)

    return _fitted(explanation, weights, baseline, seed)


def _coefficients(surrogate: Any, tokens: int, samples: int, at_once: int) -> Float[Tensor, " tokens"]:
    """Fit a surrogate of captum to what the model answers on random subsets of the tokens."""
    coefficients: Tensor = surrogate.attribute(torch.ones(1, tokens), n_samples=samples, perturbations_per_eval=at_once)
    return coefficients[0]


class _Ridge:
    """Captum's interface of a surrogate: a weighted ridge regression in float64, its intercept not penalised."""

    def __init__(self, alpha: float):
        self.alpha = alpha
        self.weights = torch.zeros(0)

    def fit(self, train_data: Any, **_: Any) -> dict[str, Any]:
        """Fit to the one batch of subsets, answers and weights."""
        on, answers, counts = (x.double() for x in next(iter(train_data)))
        counts = counts / counts.max()
        share = counts / counts.sum()
        on_centred = on - share @ on
        centred = answers - share @ answers
        penalty = self.alpha**0.5 * torch.eye(on.shape[1], dtype=on.dtype)
        rows = torch.cat([on_centred * counts.sqrt()[:, None], penalty])
        wanted = torch.cat([centred * counts.sqrt(), penalty.new_zeros(len(penalty))])
        self.weights = torch.linalg.lstsq(rows, wanted[:, None], driver="gelsd").solution.T
        return {}

    def representation(self) -> Tensor:
        """The coefficients, `[1, tokens]`."""
        return self.weights


def _fitted(
    explanation: Explanation, weights: Callable[[Answers, int], Tensor], baseline: float, seed: int
) -> RelevanceMaps:
    """Fit one surrogate per sample, on its content tokens."""
    recording = explanation.recording
    content = recording.content_mask(recording.explained.tokens)
    scores = torch.zeros(content.shape, dtype=torch.float64)
    for row, (tokens, start) in enumerate(zip(content, recording.content_seeds(seed), strict=True)):
        torch.default_generator.manual_seed(start)  # captum draws from it; the engine restores the caller's state
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = weights(_answers(explanation, row, tokens, baseline), int(tokens.sum()))
            scores[row, tokens.cpu()] = fitted.double()
    return RelevanceMaps(scores.to(recording.logits))


def _answers(explanation: Explanation, row: int, tokens: Bool[Tensor, " tokens"], baseline: float) -> Answers:
    def answers(on: Tensor) -> Tensor:
        present = tokens.new_zeros(len(on), len(tokens))
        present[:, tokens] = on.to(tokens.device) > 0
        rows = torch.full((len(on),), row, device=tokens.device)
        return answers_without(explanation, present, rows, baseline=baseline).cpu()

    return answers


def _captum() -> ModuleType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            captum = importlib.import_module("captum")
            importlib.import_module("captum.attr")
            return captum
    except ModuleNotFoundError as error:
        if error.name != "captum":
            raise
        raise UnsupportedMethodError("lime and kernel_shap need captum: pip install 'lrptrain[captum]'") from error
