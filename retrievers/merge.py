"""Several rankings of one question become one.

``MERGES`` names those that need nothing but the rankings. Which one is right depends on the scores:

* ``round_robin``: the first of each in turn. Needs no scores; the order of the rankings matters a little.
* ``rrf``: reciprocal rank fusion. Needs no scores; a passage that several rankings have rises.
* ``max``: a passage's best score. Only where all scores are of one scale: one retriever asked with several queries,
  best with similarities of one encoder; never across different retrievers.

All of them but ``round_robin`` give the same for any order of the rankings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import TypeAlias

from corpora.types import Hit, Ranking

Merge: TypeAlias = Callable[[Sequence[Ranking], int], Ranking]
"""(rankings, k) -> at most k hits, best first, each passage once; one ranking alone keeps its order and scores."""


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


def with_duplicates(rankings: Sequence[Ranking], k: int) -> tuple[str, ...]:
    """The ids of the first k passages of ``round_robin`` that keeps what several rankings have: for comparison only.

    So the code of BERDS merges expansions, against its paper (https://arxiv.org/abs/2409.18110). It is no ranking, for
    that has each passage once, and can become no run.
    """
    deepest = max((len(ranking) for ranking in rankings), default=0)
    taken = (ranking[rank].passage_id for rank in range(deepest) for ranking in rankings if rank < len(ranking))
    return tuple(islice(taken, k))


def reciprocal_rank_fusion(rankings: Sequence[Ranking], k: int, constant: float = 60) -> Ranking:
    """The k best by the sum of 1 / (constant + rank) over the rankings that have the passage; ties by passage id.

    Cormack, Clarke and Buettcher (2009): Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods, https://doi.org/10.1145/1571941.1572114. Ranks count from 1. Where a ranking is in the order of its scores
    with ties by passage id, as retrievers promise, equal scores share the best rank among them, so that an identifier
    is never evidence; without ties, and where only the position tells, this is the formula of the paper.
    """
    if len(rankings) == 1:
        return rankings[0][:k]
    parts: dict[str, list[float]] = {}
    for ranking in rankings:
        for hit, rank in zip(ranking, _ranks(ranking), strict=True):
            parts.setdefault(hit.passage_id, []).append(1 / (constant + rank))
    return _summed(parts, k)


def best_score(rankings: Sequence[Ranking], k: int) -> Ranking:
    """The k best by each passage's best score over the rankings; ties by passage id.

    Right where the scores can be compared, which means: one retriever, several queries of about the same length, or
    parts of one corpus. Scores of different retrievers have different scales; BM25 scores grow with the query.
    """
    if len(rankings) == 1:
        return rankings[0][:k]
    best: dict[str, float] = {}
    for ranking in rankings:
        for hit in ranking:
            best[hit.passage_id] = max(hit.score, best.get(hit.passage_id, -math.inf))
    return best_first((Hit(passage_id, score) for passage_id, score in best.items()), k)


def weighted_sum(rankings: Sequence[Ranking], weights: Sequence[float], k: int) -> Ranking:
    """The k best by the weighted sum of scores, each ranking scaled to 0 ... 1; ties by passage id.

    Min-max scaling: a ranking's best hit gets 1, its worst 0, and a passage that it lacks 0 too. Where all hits have
    one score, that is 1. The scale, and so the sum, depends on how deep the rankings are: always give equal depths.

    Raises:
        ValueError: Not one weight per ranking.
    """
    if len(rankings) != len(weights):
        raise ValueError(f"found {len(weights)} weights for {len(rankings)} rankings: give one each")
    parts: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        scores = [hit.score for hit in ranking]
        low, high = min(scores, default=0.0), max(scores, default=0.0)
        for hit in ranking:
            scaled = (hit.score - low) / (high - low) if high > low else 1.0
            parts.setdefault(hit.passage_id, []).append(weight * scaled)
    return _summed(parts, k)


def best_first(hits: Iterable[Hit], k: int) -> Ranking:
    """The k best hits by score, ties by passage id: rankings over the parts of one corpus become that of the whole."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[:k])


MERGES: Mapping[str, Merge] = {"round_robin": round_robin, "rrf": reciprocal_rank_fusion, "max": best_score}


def _ranks(ranking: Ranking) -> Iterable[int]:
    """The rank of each hit, from 1; equal scores share one where the ranking breaks ties by passage id."""
    order = [(-hit.score, hit.passage_id) for hit in ranking]
    if any(worse < better for better, worse in pairwise(order)):
        return range(1, len(ranking) + 1)
    ranks: list[int] = []
    for i, (score, _) in enumerate(order):
        ranks.append(ranks[-1] if i and score == order[i - 1][0] else i + 1)
    return ranks


def _summed(parts: Mapping[str, Sequence[float]], k: int) -> Ranking:
    """Exact sums, so that the order of the rankings changes no bit."""
    return best_first((Hit(passage_id, math.fsum(scores)) for passage_id, scores in parts.items()), k)
