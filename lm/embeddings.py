"""Embeddings that are kept: a text that one encoder has embedded is never embedded by it again.

Rerankers try many parameters on the same pools, and several retrievers find the same passages. Vectors are kept in a
segment store (``corpora/segments.py``) per encoder, under a hash of the text; whole corpora have an index of their own
(``retrievers/encoding.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from corpora.artefacts import cache_root
from corpora.fingerprint import digest
from corpora.segments import Segments
from corpora.types import Passage, Query
from lm.base import Encoder

BLOCK = 1024
"""Texts that are embedded and published at a time: what a kill can lose."""

T = TypeVar("T", Passage, Query)


class Embeddings:
    """Vectors of passages and queries by one encoder, from the cache as far as they are there.

    Args:
        encoder: Asked for what is missing, and for nothing else: where all is there, no model is loaded.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """float32 (n, d), aligned with the passages."""
        own = getattr(self.encoder, "passage_fingerprint", None)
        name = own if isinstance(own, str) else self.encoder.fingerprint
        keys = [_key(passage.title, passage.text) for passage in passages]
        return self._vectors(f"passages-{digest(name)[:24]}", passages, keys, self.encoder.encode_passages)

    def queries(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        """float32 (n, d), aligned with the queries.

        Raises:
            ValueError: The encoder gives a query several vectors.
        """
        keys = [_key(query.text) for query in queries]
        folder = f"queries-{digest(self.encoder.fingerprint)[:24]}"
        return self._vectors(folder, queries, keys, self._one_each)

    @cached_property
    def _stores(self) -> dict[str, Segments]:
        return {}

    def _one_each(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        found = self.encoder.encode_queries(queries)
        if len(found.vectors) != len(queries):
            raise ValueError(
                f"the encoder gives {len(found.vectors)} vectors for {len(queries)} queries: expected one each"
            )
        return found.vectors

    def _vectors(
        self, folder: str, texts: Sequence[T], keys: list[bytes], encode: Callable[[Sequence[T]], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        d = self.encoder.dimension
        if not texts:
            return np.empty((0, d), np.float32)
        place = cache_root() / "embeddings" / folder
        store = self._stores.setdefault(str(place), Segments(place, _schema(d)))
        store.refresh()
        unique = {key: i for i, key in enumerate(keys)}
        found, _ = store.lookup(list(unique), ())
        missing = [i for i, here in zip(unique.values(), found.tolist(), strict=True) if not here]
        if missing:
            self._embed(store, [texts[i] for i in missing], [keys[i] for i in missing], encode)
        here, table = store.get(keys)
        if not here.all():
            raise ValueError(f"{place}: embeddings vanish while they are read; is somebody deleting this folder?")
        column = table.column("vector").combine_chunks()
        found_vectors: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(keys), d)
        return found_vectors

    def _embed(
        self,
        store: Segments,
        texts: Sequence[T],
        keys: Sequence[bytes],
        encode: Callable[[Sequence[T]], NDArray[np.float32]],
    ) -> None:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i].text))  # texts of one length share a batch
        with tqdm(total=len(texts), desc="embed", unit="text", disable=None, leave=False) as bar:
            for start in range(0, len(order), BLOCK):
                chosen = order[start : start + BLOCK]
                vectors = np.ascontiguousarray(encode([texts[i] for i in chosen]), dtype=np.float32)
                expected = (len(chosen), self.encoder.dimension)
                if vectors.shape != expected or not np.isfinite(vectors).all():
                    shown = "NaN or infinity" if vectors.shape == expected else f"an array of {vectors.shape}"
                    raise ValueError(f"the encoder gave {shown}, expected {expected} finite numbers")
                store.publish([keys[i] for i in chosen], {"vector": vectors})
                bar.update(len(chosen))
        store.compact()
        store.refresh()


def _schema(dimension: int) -> pa.Schema:
    return pa.schema([pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False)])


def _key(*texts: str) -> bytes:
    """16 bytes for these texts; lengths tell where one ends."""
    hashed = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:" % len(data))
        hashed.update(data)
    return hashed.digest()
