"""The stage before the search: an expander writes further queries, which are kept as an artefact.

Nothing here knows of experiments; ``Experiment.queries`` and ``Experiment.aspects`` say what the queries are used for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from corpora.artefacts import artefact, find_artefact, write_atomic
from corpora.fingerprint import digest, fingerprint
from corpora.types import Query
from retrievers.expansion import Expander

EXPAND_VERSION = 1
STAGE = "expand"
_FILE = "queries.json"


def expand_key(expander: Expander, queries: Sequence[Query]) -> str:
    """The key of the expansions of these queries."""
    asked = [[query.query_id, query.question_id, query.text, query.origin] for query in queries]
    return digest({"version": EXPAND_VERSION, "expander": fingerprint(expander), "queries": asked})


def is_expanded(expander: Expander, queries: Sequence[Query]) -> bool:
    """Whether the expansions lie there already."""
    return find_artefact(STAGE, expand_key(expander, queries)) is not None


def expansions(expander: Expander, name: str, queries: Sequence[Query]) -> dict[str, tuple[Query, ...]]:
    """query_id -> the queries in its place; written on first use, else read.

    Args:
        expander: Asked once for all queries.
        name: For messages.
        queries: The questions' own.

    Raises:
        ValueError: The expander broke its protocol.
    """

    def make(folder: Path) -> None:
        found = [tuple(each) for each in expander.expand(tuple(queries))]
        _check(name, queries, found)
        records = [[[q.query_id, q.question_id, q.text, q.origin] for q in each] for each in found]
        write_atomic(folder / _FILE, json.dumps(records, ensure_ascii=False))

    path = artefact(STAGE, expand_key(expander, queries), make) / _FILE
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        made = [tuple(Query(*fields) for fields in each) for each in records]
        return dict(zip((query.query_id for query in queries), made, strict=True))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): remove the folder {path.parent}, and it is made anew"
        ) from error


def written(queries: Sequence[Query]) -> tuple[Query, ...]:
    """Those that the expander wrote, without the question's own."""
    return tuple(query for query in queries if query.origin.startswith("expansion:"))


def _check(name: str, queries: Sequence[Query], found: Sequence[tuple[Query, ...]]) -> None:
    if len(found) != len(queries):
        raise ValueError(f"expander {name!r} returned {len(found)} tuples of queries for {len(queries)} queries")
    seen = {query.query_id: query.query_id for query in queries}
    for own, each in zip(queries, found, strict=True):
        problem = None
        if not each or not all(isinstance(query, Query) for query in each):
            problem = f"{each!r}, expected a Query or more"
        elif any(query.question_id != own.question_id for query in each):
            problem = "queries of another question"
        elif any(not isinstance(query.text, str) or not isinstance(query.query_id, str) for query in each):
            problem = "a query whose id or text is no str"
        elif repeated := [
            query.query_id for query in each if seen.setdefault(query.query_id, own.query_id) != own.query_id
        ]:
            problem = f"the query_id {repeated[0]!r}, which another query has"
        elif len({query.query_id for query in each}) < len(each):
            problem = "a query_id twice"
        if problem:
            raise ValueError(f"expander {name!r} returned {problem} for query {own.query_id!r}")
