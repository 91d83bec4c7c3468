"""The protocol of a reranker: it orders the whole pool of a question anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from corpora.types import Pool, Ranking


@runtime_checkable
class Reranker(Protocol):
    """Orders pools of passages.

    Optional class attributes: ``version``, ``runtime_args`` (as for retrievers) and ``oracle: ClassVar[bool]``
    (True: the pools carry labels, and every table says so).
    """

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Rankings aligned with the pools, best first.

        Called once per group with all its questions. A prefix of the pool may be returned: the rest follows
        in its old order. A method without scores of its own gives n, n-1, ...
        """
        ...
