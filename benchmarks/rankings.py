"""Rankings as artefacts of the cache, whole or in parts, and the checks of what plug-ins return."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.plan import parts_of
from corpora.artefacts import artefact, find_artefact
from corpora.base import Corpus
from corpora.types import Hit, Pool, Query, Ranking

SCHEMA = pa.schema([("query_id", pa.string()), ("passage_id", pa.string()), ("score", pa.float64())])


def whole(
    stage: str,
    key: str,
    make: Callable[..., None],
    merge: Callable[[list[dict[str, Ranking]]], dict[str, Ranking]],
) -> Path:
    """The artefact. Where parts of it were made apart, only those that are missing are made, and all are merged."""
    parts = {} if find_artefact(stage, key) else parts_of(stage, key)
    if not parts:
        return artefact(stage, key, make)
    folders = [artefact(stage, name, partial(make, part=(i, len(parts)))) for i, name in enumerate(parts)]
    return artefact(stage, key, lambda folder: write_rankings(folder, merge([read_rankings(part) for part in folders])))


def joined(parts: list[dict[str, Ranking]]) -> dict[str, Ranking]:
    """The rankings of parts that hold different queries."""
    return {query_id: ranking for part in parts for query_id, ranking in part.items()}


def write_rankings(folder: Path, rankings: dict[str, Ranking]) -> None:
    """Write query_id -> ranking into a folder."""
    rows = [(query_id, hit.passage_id, float(hit.score)) for query_id, ranking in rankings.items() for hit in ranking]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    pq.write_table(
        pa.table(columns, schema=SCHEMA), folder / "rankings.parquet", compression="zstd", write_page_checksum=True
    )


def read_rankings(folder: Path) -> dict[str, Ranking]:
    """query_id -> ranking, of a folder.

    Raises:
        ValueError: The file is damaged.
    """
    path = folder / "rankings.parquet"
    try:
        columns = [
            column.to_pylist() for column in pq.read_table(path, schema=SCHEMA, page_checksum_verification=True).columns
        ]
    except (AttributeError, OSError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{path} is damaged: remove the folder {folder}, and it is made anew") from error
    rankings: dict[str, list[Hit]] = {}
    for query_id, passage_id, score in zip(*columns, strict=True):
        rankings.setdefault(query_id, []).append(Hit(passage_id, score))
    return {query_id: tuple(hits) for query_id, hits in rankings.items()}


def completed(name: str, pool: Pool, ranking: Ranking) -> Ranking:
    """The reranker's order, followed by what it left out, in the old order, with scores that go on falling."""
    problem = _problem(ranking, len(pool.ranking))
    chosen = {hit.passage_id for hit in ranking} if problem is None else set()
    if problem is None and not chosen <= {hit.passage_id for hit in pool.ranking}:
        problem = "a passage that is not in the pool"
    if problem:
        raise ValueError(f"reranker {name!r} returned {problem} for question {pool.query.question_id!r}")
    rest = [hit.passage_id for hit in pool.ranking if hit.passage_id not in chosen]
    last = min((hit.score for hit in ranking), default=0.0)
    return (*ranking, *(Hit(passage_id, last - 1 - i) for i, passage_id in enumerate(rest)))


def check_rankings(name: str, found: Sequence[Ranking], queries: Sequence[Query], k: int, corpus: Corpus) -> None:
    """Raises ValueError where a retriever's answer breaks the protocol.

    Of each ranking the first and the last passage are looked up in the corpus: enough to find a retriever that answers
    from another corpus, and cheap where a look-up reads a disk.
    """
    if len(found) != len(queries):
        raise ValueError(f"retriever {name!r} returned {len(found)} rankings for {len(queries)} queries")
    for query, ranking in zip(queries, found, strict=True):
        problem = _problem(ranking, k)
        if problem is None and any(worse.score > better.score for better, worse in pairwise(ranking)):
            problem = "hits that are not best first"
        if problem:
            raise ValueError(f"retriever {name!r} returned {problem} for query {query.query_id!r}")
        try:
            corpus.get([hit.passage_id for hit in (*ranking[:1], *ranking[-1:])])
        except KeyError as error:
            raise ValueError(f"retriever {name!r}, query {query.query_id!r}: {error.args[0]}") from error


def _problem(ranking: Ranking, k: int) -> str | None:
    """What is wrong with a ranking; None where nothing is."""
    strange = next((hit for hit in ranking if not isinstance(hit, Hit)), None)
    if strange is not None:
        return f"a {type(strange).__name__} where a Hit was expected"
    if len(ranking) > k:
        return f"{len(ranking)} hits, at most {k} were asked for,"
    if not all(isinstance(hit.passage_id, str) for hit in ranking):
        return "a passage id that is no str"
    if len({hit.passage_id for hit in ranking}) != len(ranking):
        return "a passage twice"
    if not all(isinstance(hit.score, numbers.Real) and math.isfinite(hit.score) for hit in ranking):
        return "a score that is no finite number"
    return None
