"""Several rankings of one question become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corpora.types import Hit, Ranking


def round_robin(rankings: Sequence[Ranking], k: int) -> Ranking:
    """The first passage of each ranking in turn, then the second ..., each passage once, at most k.

    This is how the BERDS paper merges the rankings of several queries (Chen and Choi, 2024,
    https://arxiv.org/abs/2409.18110). One ranking alone keeps its scores; several have scores that cannot be compared,
    so the merged hits get n, n-1, ...
    """
    if len(rankings) == 1:
        return rankings[0][:k]
    merged: dict[str, None] = {}
    for rank in range(max((len(ranking) for ranking in rankings), default=0)):
        for ranking in rankings:
            if rank < len(ranking):
                merged.setdefault(ranking[rank].passage_id)
    chosen = list(merged)[:k]
    return tuple(Hit(passage_id, float(len(chosen) - i)) for i, passage_id in enumerate(chosen))


def best_first(hits: Iterable[Hit], k: int) -> Ranking:
    """The k best hits by score, ties by passage id: rankings over the parts of one corpus become that of the whole."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[:k])
