"""The stages of a run: search -> rerank -> judge -> score. Each takes what lies there already and makes only the rest.

What plug-ins return is checked here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from benchmarks.plan import part_key, parts_done, rerank_key, search_key
from benchmarks.resolve import Experiment
from corpora.artefacts import artefact, find_artefact
from corpora.base import Corpus
from corpora.fingerprint import digest
from corpora.types import Hit, Passage, Pool, Query, Question, Ranking, Run
from retrievers.base import Retriever
from retrievers.merge import best_first, round_robin

T = TypeVar("T")
QUERIES_AT_ONCE = 256
RANKINGS = pa.schema([("query_id", pa.string()), ("passage_id", pa.string()), ("score", pa.float64())])


def index(experiment: Experiment) -> None:
    """Build or open the index of every corpus that the questions are searched in."""
    retriever, whole = _searching(experiment)
    part = experiment.config.part()
    if part is not None and not getattr(retriever, "local_scores", False):
        raise ValueError(f"--shard: retriever {experiment.config.retriever!r} indexes the whole corpus: leave it out")
    corpus = whole if part is None else whole.part(*part)
    for each, _ in _bar(_by_corpus(corpus, experiment.queries), "index"):
        if len(each):  # a part of a small corpus can be empty
            retriever.index(each)


def search(experiment: Experiment) -> dict[str, Ranking]:
    """query_id -> raw ranking; searched, or read where it was searched before."""
    key = search_key(experiment)
    return _read(_whole("search", key, lambda folder: _search(experiment, folder, None), _merge_parts(experiment)))


def search_part(experiment: Experiment) -> Path:
    """Search the part that ``--shard`` names; its artefact waits for the others."""
    part = _part(experiment)
    return artefact("search", part_key(search_key(experiment), part), lambda folder: _search(experiment, folder, part))


def retrieved(experiment: Experiment) -> Run:
    """question_id -> ranking: the run file's, or what was searched, with several queries of a question merged."""
    depth = experiment.config.depth
    if experiment.run_path is not None:
        run = experiment.given.run
        return {q.question_id: run.get(q.question_id, ())[:depth] for q in experiment.searched}
    raw = search(experiment)
    lists: dict[str, list[Ranking]] = {question.question_id: [] for question in experiment.searched}
    for query in experiment.queries:
        lists[query.question_id].append(raw.get(query.query_id, ()))
    return {question_id: round_robin(rankings, depth) for question_id, rankings in lists.items()}


def final_run(experiment: Experiment) -> Run:
    """question_id -> the ranking that is scored: reranked where there is a reranker."""
    if experiment.reranker is None:
        return retrieved(experiment)
    key = rerank_key(experiment)
    run = _read(_whole("rerank", key, lambda folder: _rerank(experiment, folder, None), _join_parts))
    return {question.question_id: run.get(question.question_id, ()) for question in experiment.scored}


def rerank_part(experiment: Experiment) -> Path:
    """Rerank the groups that ``--shard`` names."""
    if experiment.reranker is None:
        raise ValueError("--until rerank: no --reranker is given")
    part = _part(experiment)
    return artefact("rerank", part_key(rerank_key(experiment), part), lambda folder: _rerank(experiment, folder, part))


def passages_of_part(run: Run, part: tuple[int, int]) -> Run:
    """The run with only those passages that belong to part i of n: all pairs of a passage are judged together."""
    i, n = part
    return {
        question_id: tuple(hit for hit in ranking if int(digest(hit.passage_id), 16) % n == i)
        for question_id, ranking in run.items()
    }


def passages(experiment: Experiment) -> Callable[[Sequence[str]], Sequence[Passage]]:
    """The function that gives the passages of ids: from inside the run file, else from the corpus."""
    inside = {} if experiment.run_path is None else experiment.given.passages
    corpus = experiment.corpus

    def texts(ids: Sequence[str]) -> Sequence[Passage]:
        missing = [passage_id for passage_id in ids if passage_id not in inside]
        if missing and corpus is None:
            raise ValueError(f"passage {missing[0]!r} has no text: the run carries none and there is no --corpus")
        try:
            found = dict(zip(missing, corpus.get(missing) if corpus is not None else (), strict=True))
        except KeyError as error:
            raise ValueError(str(error.args[0])) from error
        return [inside.get(passage_id) or found[passage_id] for passage_id in ids]

    return texts


def _searching(experiment: Experiment) -> tuple[Retriever, Corpus]:
    if experiment.retriever is None or experiment.corpus is None:
        raise ValueError("--run gives the ranking: there is nothing to index or to search")
    return experiment.retriever, experiment.corpus


def _part(experiment: Experiment) -> tuple[int, int]:
    part = experiment.config.part()
    if part is None:
        raise TypeError("no --shard is given")
    return part


def _search(experiment: Experiment, folder: Path, part: tuple[int, int] | None) -> None:
    retriever, corpus = _searching(experiment)
    queries: Sequence[Query] = experiment.queries
    local = bool(getattr(retriever, "local_scores", False))
    if part is not None and local:
        corpus = corpus.part(*part)
    elif part is not None:
        queries = [query for question in _slice(experiment.searched, part) for query in _of(queries, question)]
    # One pass over the corpus serves all queries of a dense retriever; others show progress batch by batch.
    size = max(1, len(queries)) if local else QUERIES_AT_ONCE
    rankings: dict[str, Ranking] = {}
    with tqdm(total=len(queries), desc="search", unit="query", disable=None, leave=False) as bar:
        for each, asked in _by_corpus(corpus, queries):
            if not len(each):
                continue
            searcher = retriever.index(each)
            for start in range(0, len(asked), size):
                batch = asked[start : start + size]
                found = searcher.search(batch, experiment.config.depth)
                _check_rankings(experiment.config.retriever, found, batch, experiment.config.depth, each)
                rankings.update(zip((query.query_id for query in batch), map(tuple, found), strict=True))
                bar.update(len(batch))
    _write(folder, rankings)


def _rerank(experiment: Experiment, folder: Path, part: tuple[int, int] | None) -> None:
    reranker, name = experiment.reranker, experiment.config.reranker
    if reranker is None:
        raise TypeError("no reranker")
    run, texts = retrieved(experiment), passages(experiment)
    groups: dict[str, list[Question]] = {}
    for question in experiment.searched:
        groups.setdefault(question.group, []).append(question)
    names = list(groups) if part is None else _slice(list(groups), part)
    result: dict[str, Ranking] = {}
    for group in _bar(names, "rerank"):
        pools = [_pool(experiment, question, run, texts) for question in groups[group]]
        found = reranker.rerank(pools)
        if len(found) != len(pools):
            raise ValueError(f"reranker {name!r} returned {len(found)} rankings for {len(pools)} pools")
        for question, pool, ranking in zip(groups[group], pools, found, strict=True):
            result[question.question_id] = _completed(str(name), pool, tuple(ranking))
    _write(folder, result)


def _pool(
    experiment: Experiment, question: Question, run: Run, texts: Callable[[Sequence[str]], Sequence[Passage]]
) -> Pool:
    ranking = run[question.question_id]
    query = Query(question.question_id, question.question_id, question.text)
    labels = None
    if getattr(experiment.reranker, "oracle", False):
        from benchmarks.scoring import oracle_labels

        labels = oracle_labels(experiment, question, ranking)
    return Pool(query, ranking, tuple(texts([hit.passage_id for hit in ranking])), labels=labels)


def _completed(name: str, pool: Pool, ranking: Ranking) -> Ranking:
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


def _check_rankings(name: str, found: Sequence[Ranking], queries: Sequence[Query], k: int, corpus: Corpus) -> None:
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
    if len({hit.passage_id for hit in ranking}) != len(ranking):
        return "a passage twice"
    if not all(math.isfinite(hit.score) for hit in ranking):
        return "a score that is no finite number"
    return None


def _by_corpus(corpus: Corpus, queries: Sequence[Query]) -> list[tuple[Corpus, list[Query]]]:
    """The queries grouped by the corpus that their question is searched in."""
    groups: dict[str, tuple[Corpus, list[Query]]] = {}
    for query in queries:
        view = corpus.for_question(query.question_id)
        groups.setdefault(view.fingerprint, (view, []))[1].append(query)
    return list(groups.values())


def _whole(
    stage: str, key: str, make: Callable[[Path], None], merge: Callable[[list[dict[str, Ranking]]], dict[str, Ranking]]
) -> Path:
    """The artefact; where all its parts were made apart, merged from them."""
    parts = [] if find_artefact(stage, key) else [find_artefact(stage, part) for part in parts_done(stage, key)]
    if not parts:
        return artefact(stage, key, make)
    return artefact(stage, key, lambda folder: _write(folder, merge([_read(part) for part in parts if part])))


def _merge_parts(experiment: Experiment) -> Callable[[list[dict[str, Ranking]]], dict[str, Ranking]]:
    if not getattr(experiment.retriever, "local_scores", False):
        return _join_parts
    depth = experiment.config.depth
    return lambda parts: {
        query.query_id: best_first((hit for part in parts for hit in part.get(query.query_id, ())), depth)
        for query in experiment.queries
    }


def _join_parts(parts: list[dict[str, Ranking]]) -> dict[str, Ranking]:
    return {query_id: ranking for part in parts for query_id, ranking in part.items()}


def _write(folder: Path, rankings: dict[str, Ranking]) -> None:
    rows = [(query_id, hit.passage_id, float(hit.score)) for query_id, ranking in rankings.items() for hit in ranking]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    pq.write_table(pa.table(columns, schema=RANKINGS), folder / "rankings.parquet", compression="zstd")


def _read(folder: Path) -> dict[str, Ranking]:
    rankings: dict[str, list[Hit]] = {}
    table = pq.read_table(folder / "rankings.parquet", schema=RANKINGS)
    for query_id, passage_id, score in zip(*(column.to_pylist() for column in table.columns), strict=True):
        rankings.setdefault(query_id, []).append(Hit(passage_id, score))
    return {query_id: tuple(hits) for query_id, hits in rankings.items()}


def _slice(items: Sequence[T], part: tuple[int, int]) -> Sequence[T]:
    i, n = part
    return items[len(items) * i // n : len(items) * (i + 1) // n]


def _of(queries: Iterable[Query], question: Question) -> list[Query]:
    return [query for query in queries if query.question_id == question.question_id]


def _bar(items: Sequence[T], stage: str) -> Iterable[T]:
    return cast("Iterable[T]", tqdm(items, desc=stage, disable=None, leave=False))
