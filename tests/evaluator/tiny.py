"""Tiny random models, a tokenizer of whole words, and pairs that can be learnt: for the tests of training."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
)

from corpora.types import Passage, Perspective, Question
from evaluator.pairs import LabelledPair, write_pairs
from evaluator.types import Pair

FILLER = ("house", "tree", "river", "street", "music", "paper", "winter", "garden", "window", "bridge")
COLOURS = ("red", "blue")
PROMPT = "Passage: {passage} Statement: {perspective} Answer:"
WORDS = (
    *FILLER,
    *COLOURS,
    "Passage:",
    "Statement:",
    "Answer:",
    "[INST]",
    "[/INST]",
    "Yes",
    "No",
    "Question?",
    "x",
    "a",
)
CAUSAL_RECIPE = {
    "kind": "causal",
    "rendering": "mistral",
    "epochs": 4,
    "learning_rate": 2e-2,
    "effective_batch": 16,
    "micro_batch": 4,
    "max_length": 64,
    "evaluations_per_epoch": 2,
    "dev_pairs": 16,
    "weight_decay": 0.001,
    "lora": {"r": 8, "alpha": 16, "dropout": 0.1, "target_modules": ["q_proj", "v_proj", "o_proj", "down_proj"]},
}
ENCODER_LAYERS = ["query", "key", "value", "output.dense", "intermediate.dense"]
CROSS_RECIPE = {key: CAUSAL_RECIPE[key] for key in CAUSAL_RECIPE if key not in ("rendering", "lora")} | {
    "kind": "cross_encoder",
    "class_weights": "balanced",
    "lora": {"r": 8, "alpha": 16, "dropout": 0.1, "target_modules": ENCODER_LAYERS, "train_also": ["pooler"]},
}


def make_mistral(folder: Path, seed: int = 0) -> Path:
    """A causal model of two layers, with its tokenizer (words begin with the sign that SentencePiece puts)."""
    names = ["<unk>", "<s>", "</s>", *(f"\u2581{word}" for word in WORDS), "Yes", "No"]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=128
    )
    torch.manual_seed(seed)
    config = MistralConfig(
        vocab_size=len(names), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, sliding_window=None,
        initializer_range=0.3,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_bert(folder: Path, seed: int = 0, token_types: int = 2) -> Path:
    """An encoder of two layers, with its tokenizer."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        model_max_length=128, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(names), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, initializer_range=0.3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        type_vocab_size=token_types,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_pairs(n: int = 96, seed: int = 0, length: tuple[int, int] = (3, 9)) -> list[LabelledPair]:
    """A document supports a perspective when it has the word red in it; the others have blue."""
    chance = random.Random(seed)
    found = []
    for i in range(n):
        label = chance.random() < 0.4
        words = chance.choices(FILLER, k=chance.randint(*length))
        words[chance.randrange(len(words))] = COLOURS[not label]
        question = Question(f"q{i % 8}", f"Question {seed}.{i % 8}?")
        perspective = Perspective(f"p{i % 8}", f"{FILLER[i % 8]} red")
        found.append(LabelledPair(Pair(question, perspective, Passage(f"d{i}", " ".join(words))), label))
    return found


def write_recipe(folder: Path, recipe: dict[str, object], base: Path, **changes: object) -> Path:
    """A recipe file, and for a causal recipe its prompt."""
    values = recipe | {"base_model": str(base)}
    if recipe["kind"] == "causal":
        (folder / "prompt.yaml").write_text(yaml.safe_dump({"messages": [{"role": "user", "content": PROMPT}]}))
        values["prompt"] = str(folder / "prompt.yaml")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values | changes))
    return path


def write(folder: Path, name: str, pairs: Sequence[LabelledPair]) -> Path:
    """A file of pairs."""
    write_pairs(folder / name, pairs)
    return folder / name
