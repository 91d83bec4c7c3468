"""How alike passages are: cosines of their embeddings, which are kept (``lm/embeddings.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.types import Passage, Pool
from lm import make_encoder
from lm.base import Encoder
from lm.embeddings import Embeddings

POOLS_AT_ONCE = 64
"""Pools whose vectors are in memory at a time."""


class Embedder:
    """Unit vectors of passages and queries by an encoder that is named, or given.

    Args:
        encoder: ``uae``, ``minilm``, ``contriever``, a model id, a folder, ``module:Class``, or an Encoder.
        encoder_args: The encoder's own arguments, ``name=value`` each.
        device: Where it runs; None: a GPU where there is one.
        batch_size: Texts at a time; None: the encoder's default.
    """

    def __init__(
        self,
        encoder: str | Encoder,
        encoder_args: Sequence[str] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.encoder, self.encoder_args, self.device, self.batch_size = encoder, encoder_args, device, batch_size

    @cached_property
    def model(self) -> Encoder:
        """The encoder, made on first use; its weights are read when a text has to be embedded.

        Raises:
            ValueError: An unknown encoder, or wrong arguments.
        """
        if not isinstance(self.encoder, str):
            return self.encoder
        arguments: dict[str, Any] = {}
        for item in self.encoder_args:
            key, equals, value = item.partition("=")
            if not equals:
                raise ValueError(f"encoder_args: {item!r} is not of the form name=value")
            arguments[key] = value
        given = {"device": self.device, "batch_size": self.batch_size}
        return make_encoder(self.encoder, **arguments, **{k: v for k, v in given.items() if v is not None})

    @cached_property
    def embeddings(self) -> Embeddings:
        """The kept vectors of this encoder."""
        return Embeddings(self.model)

    def prefetch(self) -> None:
        """Downloads the encoder's model, where it has one to download."""
        fetch = getattr(self.model, "prefetch", None)
        if callable(fetch):
            fetch()

    def units(self, pools: Sequence[Pool]) -> Iterator[NDArray[np.float32]]:
        """Yields float32 (n, d) for each pool: its passages' vectors, of length 1 (0 for a zero vector)."""
        for start in range(0, len(pools), POOLS_AT_ONCE):
            block = pools[start : start + POOLS_AT_ONCE]
            passages: dict[str, Passage] = {p.passage_id: p for pool in block for p in pool.passages}
            rows = {passage_id: row for row, passage_id in enumerate(passages)}
            vectors = unit(self.embeddings.passages(list(passages.values())))
            for pool in block:
                yield vectors[[rows[passage.passage_id] for passage in pool.passages]]


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors with length 1; a zero vector stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return found


def cosines(units: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 (n, n)."""
    similarity: NDArray[np.float32] = units @ units.T
    return similarity
