"""Tiny random causal language models with a tokenizer of their own, saved as the hub has them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tokenizers
import torch
import transformers

MARKS = ("<unk>", "<s>", "</s>")
WORDS = [f" {word}" for word in ("yes", "Yes", "YES", "no", "No", "NO")]
TEXTS = (
    "A carbon tax makes polluters pay; the money is paid back to families who drive to work.",
    "You are given a passage and a statement. Reply with a single word, Yes or No. yes no YES NO Yes No",
    "Document: School uniforms hide who is rich.\nStatement: Uniforms are good.\nAnswer: [INST] [/INST]",
)


def make_tokenizer(texts: Iterable[str] = TEXTS, size: int = 600, special: Iterable[str] = MARKS):
    """A byte-level BPE tokenizer that can read any text."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, min_frequency=1, show_progress=False
    )
    words = [f"{word}\n{word.strip()}" for word in WORDS] * 50  # so that each is one token
    made.train_from_iterator([*texts, *words], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def make_config(kind: str = "mistral", vocabulary: int = 600, **more: object):
    sizes = {"vocab_size": vocabulary, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
    if kind == "gpt2":
        return transformers.GPT2Config(
            **{**sizes, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 4096, **more}
        )
    if kind == "mamba":
        return transformers.MambaConfig(**{**sizes, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, **more})
    if kind == "bloom":
        return transformers.BloomConfig(**{**sizes, "hidden_size": 32, "n_layer": 2, "n_head": 4, **more})
    shape = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 4096, **more,
    }  # fmt: skip
    if kind == "mistral":
        shape.setdefault("sliding_window", None)
    return transformers.AutoConfig.for_model(kind, **sizes, **shape)


def save_model(folder: Path, kind: str = "mistral", seed: int = 0, tokenizer=None, **more: object) -> Path:
    """A random model of this kind and its tokenizer."""
    tokenizer = tokenizer or make_tokenizer()
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(make_config(kind, len(tokenizer), **more))
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
