"""Cross-encoders against transformers' own forward pass, on tiny models made here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'judge'")
peft = pytest.importorskip("peft", reason="needs the extra 'judge'")

from lm.cross_encoder import CrossEncoder

SENTENCE = "the cat sat on a mat dogs bark at night why do birds sing taxes are high"
WORDS = SENTENCE.split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz0123456789.,?[]"]
VOCABULARY += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
SIZES = {
    "vocab_size": len(VOCABULARY), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip

PAIRS = [
    ("the cat sat on a mat", "dogs bark"),
    ("dogs bark at night", "why do birds sing"),
    ("taxes", "taxes are high"),
    ("", "a cat"),
    ("birds sing at night . " * 3, ""),
    ("the cat sat on a mat", "birds sing"),
    ("猫 \u200b", "x" * 20),
]


@pytest.fixture(scope="module", autouse=True)
def _few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def save(model, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    torch.manual_seed(1)
    made = transformers.BertConfig(**SIZES, num_labels=3)
    return save(transformers.BertForSequenceClassification(made), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    torch.manual_seed(2)
    return save(transformers.BertModel(transformers.BertConfig(**SIZES)), tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory) -> Path:
    """A LoRA adapter with a head of two labels, saved by PEFT itself; its own logits are kept beside it."""
    torch.manual_seed(3)
    model = transformers.BertForSequenceClassification.from_pretrained(base, num_labels=2)
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, settings).eval()
    folder = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(folder)
    np.save(folder / "expected.npy", forward(adapted, base, PAIRS))
    return folder


@torch.inference_mode()
def forward(model, folder: Path, pairs) -> np.ndarray:
    """One pair at a time by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = [
        model(**tokenizer([first], [second], truncation="only_first", max_length=64, return_tensors="pt")).logits[0]
        for first, second in pairs  # as lists, because a single empty text counts as none
    ]
    return np.stack([each.float().numpy() for each in found])


def same(found, expected, atol: float = 1e-5) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


def test_logits_are_those_of_transformers(bert):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(bert).eval()
    found = CrossEncoder(bert).logits(PAIRS)
    same(found, forward(model, bert, PAIRS))
    assert np.ptp(found, axis=0).min() > 0.05  # the pairs differ, so that a mix-up would show


def test_an_adapter_with_its_head_is_merged(base, adapter):
    found = CrossEncoder(base, adapter=adapter)
    same(found.logits(PAIRS), np.load(adapter / "expected.npy"))
    assert found.labels == ("LABEL_0", "LABEL_1")
