"""Tables from the saved results: means over documents, and paired differences to the method of the claim."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.intervals import Estimate, estimate, paired, starred
from experiments.table import markdown, mean_interval

CLAIM = "transformer_attribution"
SHOWN = {
    "F1 at 10": "F1 at 10", "F1 at 20": "20", "F1 at 40": "40", "F1 at 80": "80", "mean F1": "mean of 8",
    "AUPRC": "AUPRC", "EPG": "EPG", "IOU-F1": "IOU-F1",
    "comprehensiveness": "comprehensiveness ↑", "sufficiency": "sufficiency ↓",
}  # fmt: skip
COMPARED = ("mean F1", "AUPRC", "comprehensiveness", "sufficiency")
Results = Mapping[str, Sequence[Mapping[str, Any]]]


def values(results: Sequence[Mapping[str, Any]], measure: str) -> np.ndarray:
    """`[seeds, documents]`."""
    return np.array([result["documents"][measure] for result in results], float)


def per_document(results: Sequence[Mapping[str, Any]], measure: str) -> np.ndarray:
    """Mean over seeds of the documents that have the measure with all of them."""
    means = values(results, measure).mean(0)
    return means[~np.isnan(means)]


def score_table(results: Results) -> str:
    """A row per method, best mean F1 first; mean and 95 % interval over documents, for these models."""
    order = sorted(results, key=lambda name: per_document(results[name], "mean F1").mean(), reverse=True)
    rows = [
        {
            "method": f"`{name}`",
            **{head: str(estimate([per_document(results[name], key)], True)) for key, head in SHOWN.items()},
        }
        for name in order
    ]
    return markdown(rows)


def first_documents(found: Sequence[Mapping[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first seed's result, of its first documents only."""
    return [{"documents": {key: column[:count] for key, column in found[0]["documents"].items()}}]


def gaps(results: Results, name: str, measure: str) -> list[np.ndarray]:
    """The claim's method minus another one, per seed and document."""
    return paired(list(values(results[CLAIM], measure)), list(values(results[name], measure)))


def difference(gap: list[np.ndarray], found: Estimate, stars: int) -> str:
    """A difference with its interval over documents, its stars, and the range over seeds."""
    seeds = [np.nanmean(run) for run in gap]
    spread = f" ({min(seeds):+.3f} to {max(seeds):+.3f})" if len(seeds) > 1 else ""
    return f"{found.mean:+.3f} ± {found.half:.3f}{' ' * bool(stars)}{'*' * stars}{spread}"


def difference_table(results: Results) -> str:
    """Paired differences of the claim's method to every other one, in brackets the range over seeds."""
    others = [name for name in results if name != CLAIM]
    others.sort(key=lambda name: per_document(results[name], "mean F1").mean(), reverse=True)
    every = {(name, measure): gaps(results, name, measure) for name in others for measure in COMPARED}
    of_these = {key: estimate([np.mean(gap, axis=0)], same_samples=True) for key, gap in every.items()}
    sure = starred(of_these)
    # With one seed there is nothing to say of others.
    of_others = {key: estimate(gap, same_samples=True) for key, gap in every.items() if len(gap) > 1}
    surer = starred(of_others)
    return markdown(
        [
            {"minus": f"`{name}`"}
            | {
                measure: difference(every[key], of_these[key], (key in sure) + (key in sure and key in surer))
                for measure in COMPARED
                if (key := (name, measure))
            }
            for name in others
        ]
    )


def specials_line(results: Results) -> str:
    """How the mean F1 of each method changes when [CLS] and [SEP] are ranked with the content."""
    parts = []
    for name, found in results.items():
        change = per_document(found, "mean F1 with specials") - per_document(found, "mean F1")
        parts.append((change.mean(), f"`{name}` {change.mean():+.3f}"))
    return ", ".join(text for _, text in sorted(parts))


def accuracy_lines(trainings: Sequence[Mapping[str, Any]]) -> str:
    """Test accuracy per seed (Wilson) and over seeds (t)."""
    each = "; ".join(
        "seed {}: {:.1%} (95 % interval {:.1%} to {:.1%})".format(
            run["seed"], run["test_accuracy"], *run["test_interval"]
        )
        for run in trainings
    )
    mean, half = mean_interval([run["test_accuracy"] for run in trainings])
    return (
        f"Test accuracy on {trainings[0]['test_documents']} documents: {each}; over seeds {mean:.1%} ± {half:.1%} (t)."
    )


def cut_line(cut: Mapping[str, float]) -> str:
    return (
        "Cut off at 512: {documents_cut:.0%} of the {documents:.0f} test documents, and {rationale_tokens_cut_off:.1%} "
        "of the rationales' word pieces; {documents_without_visible_rationale:.0f} documents lose all of theirs."
    ).format(**cut)


def report(trainings: Sequence[Mapping[str, Any]], cut: Mapping[str, float], many: Results, costly: Results) -> str:
    """Everything that stands between the marks of the README."""
    unsupported = {
        name: found[0]["unsupported"] for name, found in (many | costly).items() if "unsupported" in found[0]
    }
    many = {name: found for name, found in many.items() if name not in unsupported}
    costly = {name: found for name, found in costly.items() if name not in unsupported}
    rounding = max(result["bf16_rounding_of_probabilities"] for found in many.values() for result in found)
    documents = len(many[CLAIM][0]["numbers"])
    parts = [
        accuracy_lines(trainings),
        f"{cut_line(cut)} Chance level of EPG on the {documents} documents: "
        f"{per_document(many[CLAIM], 'chance').mean():.3f}. bf16 moves a probability by {rounding:.4f} at most.",
        f"**All methods of few passes: {documents} documents, {len(trainings)} seeds.**",
        score_table(many),
        f"**`{CLAIM}` minus each of them**, document by document, ± 95 % over documents for these models; in brackets "
        "the range over seeds. `*`: it is not 0 for these models, `**`: nor for models of other seeds, as far as "
        f"{len(trainings)} of them tell; p <= 0.05 after Holm's correction over the table. For sufficiency, a negative "
        "difference is in its favour.",
        difference_table(many),
        f"**When [CLS] and [SEP] compete for the top k**, the mean F1 changes by: {specials_line(many)}.",
    ]
    if costly:
        few = len(next(iter(costly.values()))[0]["numbers"])
        beside = {name: first_documents(many[name], few) for name in (CLAIM, "generic_attention", "random")}
        small = beside | {name: first_documents(found, few) for name, found in costly.items()}
        parts += [
            f"**The costly methods: {few} of these documents, the first seed**, and three of the others on the same.",
            score_table(small),
            difference_table(small),
        ]
    parts += [f"Not for this model: `{name}` ({reason})." for name, reason in unsupported.items()]
    return "\n\n".join(parts)
