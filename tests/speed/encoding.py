"""Encoding rate of this machine, and what follows for Wikipedia and Sphere: ``python tests/speed/encoding.py [N]``.

An encoder of BERT-base's shape with random weights (the shape of DPR and Contriever), N passages of
130 tokens, on all GPUs where there are some, in bf16 there and fp32 on a CPU. Beside it sentence-transformers with the
same weights, on one device. Needs no download. The table divides by the measured rate; reading and writing overlap.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from corpora.types import Passage
from lm.encoder import TransformersEncoder
from lm.transformer import quiet

WORDS = 30_520
SIZES = {"Wikipedia": 21_015_324, "Sphere": 906_000_000}


def model(folder: Path) -> Path:
    """A folder with random weights and a vocabulary of made-up words."""
    torch.manual_seed(0)
    with quiet():
        BertModel(BertConfig()).save_pretrained(folder)
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *(f"w{i}" for i in range(WORDS))])}
    splits = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    splits.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=splits, pad_token="[PAD]", unk_token="[UNK]", model_max_length=512
    )
    tokenizer.save_pretrained(folder)
    return folder


def passages(n: int) -> list[Passage]:
    """Texts of 130 made-up words, a token each: as many tokens as 100 English words have."""
    drawn = np.random.default_rng(0).integers(0, WORDS, (n, 130))
    return [Passage(str(i), " ".join(f"w{word}" for word in row)) for i, row in enumerate(drawn)]


def main(n: int) -> None:
    """Measure and print."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    dtype = "bf16" if gpus else "fp32"
    with tempfile.TemporaryDirectory() as name:
        folder, texts = model(Path(name)), passages(n)
        encoder = TransformersEncoder(folder, dtype=dtype, passage_template="{text}")
        with quiet():
            peer = SentenceTransformer(str(folder), device="cuda:0" if gpus else "cpu")
        if gpus:
            peer.bfloat16()
        rates = []
        for run in (
            lambda: encoder.encode_passages(texts),
            lambda: peer.encode([passage.text for passage in texts], batch_size=64),
        ):
            run() if gpus else None  # loading and compiling
            start = time.perf_counter()
            run()
            rates.append(n / (time.perf_counter() - start))
        tokens = np.mean([len(row) for row in peer.tokenizer([p.text for p in texts])["input_ids"]])
        if peer.tokenizer.unk_token_id in peer.tokenizer(texts[0].text)["input_ids"]:
            sys.exit("the vocabulary was not read")
    where = f"{gpus} x {torch.cuda.get_device_name(0)}" if gpus else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, {dtype}, {n} passages of {tokens:.0f} tokens: {rates[0]:.1f} passages a second")
    print(f"sentence-transformers, one device: {rates[1]:.1f} (ratio {rates[0] / rates[1]:.2f})")
    each = rates[0] / max(gpus, 1)
    for corpus, size in SIZES.items():
        hours = ", ".join(f"{size / each / k / 3600:,.1f} h on {k}" for k in (1, 8, 64))
        print(f"{corpus:10} {size:>11,} passages: {hours} {'GPUs' if gpus else 'machines like this one'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else (20_000 if torch.cuda.is_available() else 64))
