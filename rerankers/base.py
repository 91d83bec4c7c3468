"""The protocol of a reranker: it orders the whole pool of a question anew.

A reranker needs this file and ``corpora.types``, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from corpora.types import Hit, Pool, Ranking


@runtime_checkable
class Reranker(Protocol):
    """Orders pools of passages.

    Optional class attributes: ``version``, ``runtime_args`` (as for retrievers), ``oracle: ClassVar[bool]`` (True: the
    pools carry labels, and every table says so), ``aspects: ClassVar[bool]`` (True: the pools must carry aspects,
    the queries that an expander wrote), ``aspect_rankings: bool`` (True: the retriever's rankings of them too),
    ``per_question: ClassVar[bool]`` (True: a question's ranking depends on its own pool alone, so that with ``--limit``
    the other questions are left out; without it, groups are always whole) and a method ``estimate(pools)``, whose
    ``str`` tells ``--dry-run`` what reranking these pools would take.
    """

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Rankings aligned with the pools, best first.

        Called once per group with all its questions (``per_question``: with those of ``--limit``). A prefix of the pool
        may be returned: the rest follows in its old order. A method without scores of its own gives n, n-1, ...
        """
        ...


def reordered(pool: Pool, order: Sequence[int]) -> Ranking:
    """The pool's hits in this order of their positions, with the scores n, n-1, ..."""
    n = len(pool.ranking)
    return tuple(Hit(pool.ranking[position].passage_id, float(n - i)) for i, position in enumerate(order))
