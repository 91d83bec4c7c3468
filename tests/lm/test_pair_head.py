"""The head that compares two texts: means over either text, begins with their cosine, and survives saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from transformers import BertConfig

from lm.cross_encoder import CrossEncoder
from lm.pair_head import COSINE, OFFSET, PairClassifier, SegmentHead, find_classifier
from tests.evaluator import tiny


def model(labels: int = 1) -> PairClassifier:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=40, num_labels=labels,
    )  # fmt: skip
    return PairClassifier(config).eval()


IDS = torch.tensor([[2, 7, 8, 9, 3, 11, 12, 3]])
TYPES = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])


def test_begins_with_the_cosine_of_the_means_over_either_text() -> None:
    made = model()
    torch.nn.init.zeros_(made.classifier.out_proj.weight)
    mask = torch.ones_like(IDS)
    with torch.no_grad():
        states = made.bert(input_ids=IDS, attention_mask=mask, token_type_ids=TYPES).last_hidden_state[0]
        found = made(input_ids=IDS, attention_mask=mask, token_type_ids=TYPES).logits
    cosine = torch.nn.functional.cosine_similarity(states[:5].mean(0), states[5:].mean(0), dim=0)
    assert found.shape == (1, 1)
    assert float(found) == pytest.approx(COSINE * float(cosine) + OFFSET, abs=1e-5)


def test_of_two_labels_the_last_one_is_yes() -> None:
    head = model(labels=2).classifier
    assert head.cosine.weight.flatten().tolist() == [0, COSINE]
    assert head.cosine.bias.tolist() == [0, OFFSET]


def test_padding_changes_nothing() -> None:
    made = model()
    padding = torch.zeros(1, 6, dtype=torch.int64)
    ids, types = torch.cat([IDS, padding], 1), torch.cat([TYPES, padding], 1)
    mask = torch.cat([torch.ones_like(IDS), padding], 1)
    with torch.no_grad():
        plain = made(input_ids=IDS, attention_mask=torch.ones_like(IDS), token_type_ids=TYPES).logits
        padded = made(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    assert float(padded) == pytest.approx(float(plain), abs=1e-5)


def test_a_text_without_tokens_gives_a_number() -> None:
    with torch.no_grad():
        found = model()(input_ids=IDS, attention_mask=torch.ones_like(IDS), token_type_ids=torch.zeros_like(IDS)).logits
    assert torch.isfinite(found).all()


def test_reads_what_it_wrote(tmp_path: Path) -> None:
    made = model()
    made.config.pair_head = "segments"
    made.save_pretrained(tmp_path)
    config = BertConfig.from_pretrained(tmp_path)
    again = find_classifier(config).from_pretrained(tmp_path).eval()
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "token_type_ids": TYPES}
    with torch.no_grad():
        assert torch.equal(made(**inputs).logits, again(**inputs).logits)


def test_the_two_vectors_are_told_apart() -> None:
    torch.manual_seed(0)
    head = SegmentHead(8, 1)
    one, other = torch.randn(1, 8), torch.randn(1, 8)
    assert float(head(one, other)) != pytest.approx(float(head(other, one)), abs=1e-6)


@pytest.mark.parametrize(
    "config",
    [BertConfig(pair_head="first"), BertConfig(pair_head="segments", type_vocab_size=1)],
)
def test_refuses_heads_that_a_model_cannot_have(config: BertConfig) -> None:
    with pytest.raises(ValueError, match="pair_head="):
        find_classifier(config)


def test_a_tokenizer_without_segment_ids_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tiny.make_bert(tmp_path / "bert")
    found = transformers.AutoTokenizer.from_pretrained(folder)
    found.model_input_names = ["input_ids", "attention_mask"]
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(folder, num_labels=1)
    config.pair_head = "segments"
    PairClassifier(config).save_pretrained(folder)
    assert len(CrossEncoder(folder, device="cpu").logits([("red house", "blue tree")])) == 1
    found.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"needs segment ids, and the tokenizer in .* gives none"):
        CrossEncoder(folder, device="cpu").logits([("red house", "blue tree")])
