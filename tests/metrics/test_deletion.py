from typing import Any

import pytest
import torch
import transformers
from hugging_face import small_sizes

from lrptrain.metrics import delete_tokens, text_probability

SIZES: dict[str, Any] = {**small_sizes(16, layers=2), "vocab_size": 40, "num_labels": 3}


def model(kind):
    torch.manual_seed(0)
    if kind == "roberta":  # its positions are counted from the ids that are not padding
        config = transformers.RobertaConfig(**SIZES, pad_token_id=1, max_position_embeddings=20)
        return transformers.RobertaForSequenceClassification(config).double().eval(), 1
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).double().eval(), 0


def texts(pad, lengths=(9, 5, 7)):
    ids = torch.randint(4, 40, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids.masked_fill(mask == 0, pad), "attention_mask": mask}


def with_ends(inputs):
    ids = inputs["input_ids"].clone()
    ids[:, 0] = 2
    ids[torch.arange(len(ids)), inputs["attention_mask"].sum(1) - 1] = 3
    return {**inputs, "input_ids": ids}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("keep_ends", [True, False])
def test_the_probability_is_that_of_the_shorter_text_alone(kind, keep_ends):
    net, pad = model(kind)
    inputs, target = with_ends(texts(pad)), torch.tensor([0, 2, 1])
    keep = torch.rand(inputs["input_ids"].shape, generator=torch.Generator().manual_seed(2)) < 0.5
    keep[:, 2] = True
    found = text_probability(lambda **batch: net(**batch).logits, inputs, target, keep_ends)(keep)
    for i, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        chosen = [t for t in range(length) if keep[i, t] or (keep_ends and t in (0, length - 1))]
        with torch.no_grad():
            logits = net(inputs["input_ids"][i, chosen][None]).logits
        torch.testing.assert_close(found[i], logits.softmax(1)[0, target[i]], atol=1e-12, rtol=0)


def test_everything_kept_is_the_text_itself():
    net, pad = model("bert")
    inputs, target = texts(pad), torch.tensor([0, 1, 2])
    probability = text_probability(lambda **batch: net(**batch).logits, inputs, target)
    expected = net(**inputs).logits.softmax(1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(probability(torch.ones(3, 9, dtype=torch.bool)), expected.detach())


def test_rows_close_up_and_the_batch_gets_shorter():
    inputs = {
        "input_ids": torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 1, 1]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "token_type_ids": torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]]),
        "weight": torch.ones(2, 5),
    }
    keep = torch.tensor([[1, 0, 0, 1, 1], [1, 0, 1, 0, 0]]).bool()
    shorter = delete_tokens(inputs, keep, pad=1)
    assert shorter["input_ids"].tolist() == [[2, 7, 3], [2, 3, 1]]
    assert shorter["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert shorter["token_type_ids"].tolist() == [[0, 1, 1], [0, 1, 0]]
    assert shorter["weight"] is inputs["weight"]


def test_a_row_of_which_nothing_is_left_keeps_its_first_token():
    inputs = {"input_ids": torch.tensor([[0, 4, 5]]), "attention_mask": torch.tensor([[0, 1, 1]])}
    shorter = delete_tokens(inputs, torch.zeros(1, 3, dtype=torch.bool))
    assert (shorter["input_ids"].tolist(), shorter["attention_mask"].tolist()) == ([[4]], [[1]])


@pytest.mark.parametrize("ends", [True, False])
def test_ends_stay_where_all_texts_have_the_same(ends):
    inputs = with_ends(texts(0)) if ends else texts(0)
    seen = []

    def predict(**batch):
        seen.append(batch["input_ids"])
        return torch.zeros(3, 2)

    text_probability(predict, inputs, torch.zeros(3).long())(torch.arange(9).expand(3, 9) == 1)
    assert [row[row > 0].tolist() for row in seen[0]] == [
        [2, word, 3] if ends else [word] for word in inputs["input_ids"][:, 1].tolist()
    ]


def test_a_mask_is_needed():
    with pytest.raises(ValueError, match="attention_mask"):
        text_probability(lambda **_: torch.zeros(1, 2), {"input_ids": torch.ones(1, 3).long()}, torch.tensor([0]))
