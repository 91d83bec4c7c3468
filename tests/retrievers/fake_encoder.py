"""A tiny encoder for tests: words hashed to small vectors; writes down what it encodes."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np

from lm.base import QueryVectors


class FakeEncoder:
    """Sums of one pseudo-random vector per word, so that every dot product is a function of the two texts."""

    def __init__(self, dimension: int = 16, seed: int = 0, query_prefix: str = "", scale: float = 1.0) -> None:
        self.size, self.seed, self.query_prefix, self.scale = dimension, seed, query_prefix, scale
        self.encoded: list[str] = []

    @property
    def fingerprint(self) -> str:
        return f"{self.passage_fingerprint} {self.query_prefix}"

    @property
    def passage_fingerprint(self) -> str:
        return f"fake {self.size} {self.seed} {self.scale}"

    @property
    def dimension(self) -> int:
        return self.size

    def encode_passages(self, passages):
        self.encoded += [passage.passage_id for passage in passages]
        if log := os.environ.get("FAKE_ENCODER_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{passages[0].passage_id} {len(passages)}\n")
            time.sleep(float(os.environ["FAKE_ENCODER_PAUSE"]))
        return np.stack([self._vector(f"{passage.title} {passage.text}") for passage in passages])

    def encode_queries(self, queries):
        vectors = np.stack([self._vector(f"{self.query_prefix} {query.text}") for query in queries])
        return QueryVectors(vectors, np.arange(len(queries)))

    def _vector(self, text):
        total = np.zeros(self.size, dtype=np.float32)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.blake2b(f"{self.seed} {word}".encode(), digest_size=4).digest(), "little")
            total += np.random.default_rng(seed).integers(-8, 9, self.size).astype(np.float32) / 8
        return total * np.float32(self.scale)
