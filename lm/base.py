"""The protocol of an encoder: texts become vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from corpora.types import Passage, Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class QueryVectors:
    """The vectors of several queries; a query may have more than one (v >= n).

    Attributes:
        vectors: float32 (v, d).
        query_index: int64 (v,): which query each vector belongs to, ascending; every query has at least one.
    """

    vectors: NDArray[np.float32]
    query_index: NDArray[np.int64]


@runtime_checkable
class Encoder(Protocol):
    """Encodes passages and queries into one space, where a higher dot product means a better match.

    An encoder is made from keyword arguments and loads its model on first use. Its ``fingerprint`` names everything
    that changes a vector: model id and commit (or content), pooling, templates, maximum length, normalisation, dtype.
    """

    @property
    def fingerprint(self) -> str:
        """A hash of everything that changes a vector."""
        ...

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """float32 (n, d), aligned with the passages; independent of the batch up to rounding."""
        ...

    def encode_queries(self, queries: Sequence[Query]) -> QueryVectors:
        """The queries' vectors."""
        ...
