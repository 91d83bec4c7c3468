"""The stages of a run: search -> rerank -> judge -> score. Each takes what lies there already and makes only the rest.

What plug-ins return is checked here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.experiment import Experiment
from benchmarks.given import check_gold
from benchmarks.plan import made, part_key, rerank_key, search_key
from benchmarks.rankings import check_rankings, completed, joined, read_rankings, whole, write_rankings
from corpora.artefacts import artefact
from corpora.base import Corpus
from corpora.fingerprint import digest
from corpora.types import Passage, Pool, Query, Question, Ranking, Run
from evaluator.depths import Depths
from evaluator.labels import gold_labels, matrices
from rerankers.base import Reranker
from retrievers.base import Retriever
from retrievers.merge import MERGES, best_first

T = TypeVar("T")
QUERIES_AT_ONCE = 256


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
    if experiment.judge is None and experiment.qrels is not None and experiment.corpus is not None:
        check_gold(experiment.qrels, {q.question_id for q in experiment.scored}, experiment.corpus)
    rankings = read_rankings(
        whole("search", search_key(experiment), partial(_search, experiment), _merge_parts(experiment))
    )
    if experiment.queries and not any(rankings.values()):
        raise ValueError(
            f"retriever {experiment.config.retriever!r} found no passage for any of {len(experiment.queries)} queries: "
            "check that it searches this corpus and answers these questions"
        )
    return rankings


def search_part(experiment: Experiment) -> Path:
    """Search the part that ``--shard`` names; its artefact waits for the others."""
    part = _part(experiment)
    return artefact("search", part_key(search_key(experiment), part), partial(_search, experiment, part=part))


def retrieved(experiment: Experiment) -> Run:
    """question_id -> ranking: the run file's, or what was searched, with several queries of a question merged."""
    depth = experiment.config.depth
    if experiment.run_path is not None:
        run = experiment.given.run
        return {q.question_id: run.get(q.question_id, ())[:depth] for q in experiment.searched}
    merge = MERGES[experiment.config.merge]
    return {question_id: merge(rankings, depth) for question_id, rankings in unmerged(experiment).items()}


def unmerged(experiment: Experiment) -> dict[str, list[Ranking]]:
    """question_id -> the raw rankings of its queries, in the queries' order."""
    raw = search(experiment)
    lists: dict[str, list[Ranking]] = {question.question_id: [] for question in experiment.searched}
    for query in experiment.merged_queries:
        lists[query.question_id].append(raw.get(query.query_id, ()))
    return lists


def final_run(experiment: Experiment) -> Run:
    """question_id -> the ranking that is scored: reranked where there are rerankers."""
    run = retrieved(experiment)
    for step in range(len(experiment.rerankers)):
        run = reranked(experiment, step, run)
    return {question.question_id: run.get(question.question_id, ()) for question in experiment.scored}


def reranked(experiment: Experiment, step: int, run: Run) -> Run:
    """The run that reranker number ``step`` makes of a run; made, or read where it was made before."""
    rerank = partial(_rerank, experiment, step, run)
    return read_rankings(whole("rerank", rerank_key(experiment, step, run), rerank, joined))


def rerank_part(experiment: Experiment) -> tuple[int, Path]:
    """Rerank the groups that ``--shard`` names, by the first reranker that has not seen all groups yet.

    Returns:
        The reranker's number, and its artefact. Where several rerank one after the other, the next one wants all parts
        of the one before.
    """
    part = _part(experiment)
    require_search(experiment)
    run = retrieved(experiment)
    last = len(experiment.rerankers) - 1
    for step in range(last):
        if not made("rerank", rerank_key(experiment, step, run)):
            last = step
            break
        run = reranked(experiment, step, run)
    key = part_key(rerank_key(experiment, last, run), part)
    return last, artefact("rerank", key, partial(_rerank, experiment, last, run, part=part))


def require_search(experiment: Experiment) -> None:
    """Raises ValueError where parts of a later stage would each have to do the whole search first."""
    if experiment.run_path is None and not made("search", search_key(experiment)):
        raise ValueError("--shard: the search is not done: run the same command with --until search first")


def require_rankings(experiment: Experiment) -> None:
    """Raises ValueError where each part of the judging would have to search or to rerank everything first."""
    require_search(experiment)
    run = retrieved(experiment)
    for step, name in enumerate(experiment.config.reranker):
        if not made("rerank", rerank_key(experiment, step, run)):
            raise ValueError(
                f"--shard: the reranking by {name} is not done: run the same command with --until rerank first"
            )
        run = reranked(experiment, step, run)


def judged_part(run: Run, part: tuple[int, int], depths: Depths) -> Run:
    """What of a run part i of n judges; together the parts judge exactly what the whole needs.

    All pairs of a passage are judged together. But whether a pair is needed lazily depends on the labels above it, so
    then all pairs of a question are.
    """
    if not depths.lazy:
        return passages_of_part(run, part, depths.reach)
    return {question_id: ranking if _in_part(question_id, part) else () for question_id, ranking in run.items()}


def passages_of_part(run: Run, part: tuple[int, int], depth: int) -> Run:
    """The run's first ranks with only the passages of part i of n: all pairs of a passage are judged together."""
    return {
        question_id: tuple(hit for hit in ranking[:depth] if _in_part(hit.passage_id, part))
        for question_id, ranking in run.items()
    }


def _in_part(name: str, part: tuple[int, int]) -> bool:
    i, n = part
    return int(digest(name), 16) % n == i


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


def _search(experiment: Experiment, folder: Path, part: tuple[int, int] | None = None) -> None:
    retriever, corpus = _searching(experiment)
    queries: Sequence[Query] = experiment.queries
    local = bool(getattr(retriever, "local_scores", False))
    if part is not None and local:
        corpus = corpus.part(*part)
    elif part is not None:
        chosen = {question.question_id for question in _slice(experiment.searched, part)}
        queries = [query for query in queries if query.question_id in chosen]
    # One pass over the corpus serves all queries of a dense retriever; others show progress batch by batch.
    size = max(1, len(queries)) if local or getattr(retriever, "one_pass", False) else QUERIES_AT_ONCE
    rankings: dict[str, Ranking] = {}
    with tqdm(total=len(queries), desc="search", unit="query", disable=None, leave=False) as bar:
        for each, asked in _by_corpus(corpus, queries):
            if not len(each):
                continue
            searcher = retriever.index(each)
            for start in range(0, len(asked), size):
                batch = tuple(asked[start : start + size])
                found = [tuple(ranking) for ranking in searcher.search(batch, experiment.config.depth)]
                check_rankings(experiment.config.retriever, found, batch, experiment.config.depth, each)
                rankings.update(zip((query.query_id for query in batch), found, strict=True))
                bar.update(len(batch))
    write_rankings(folder, rankings)


def _rerank(experiment: Experiment, step: int, run: Run, folder: Path, part: tuple[int, int] | None = None) -> None:
    reranker, name = experiment.rerankers[step], experiment.config.reranker[step]
    pool_of = pool_maker(experiment, reranker, run)
    groups: dict[str, list[Question]] = {}
    for question in experiment.searched:
        groups.setdefault(question.group, []).append(question)
    names = list(groups) if part is None else _slice(list(groups), part)
    result: dict[str, Ranking] = {}
    for group in _bar(names, "rerank"):
        pools = tuple(pool_of(question) for question in groups[group])
        found = list(reranker.rerank(pools))
        if len(found) != len(pools):
            raise ValueError(f"reranker {name!r} returned {len(found)} rankings for {len(pools)} pools")
        for question, pool, ranking in zip(groups[group], pools, found, strict=True):
            result[question.question_id] = completed(name, pool, tuple(ranking))
    write_rankings(folder, result)


def oracle_labels(experiment: Experiment, question: Question, ranking: Ranking) -> NDArray[np.int8]:
    """int8 (n, m): the gold labels of one question's pool, for rerankers that declare themselves oracles."""
    if experiment.qrels is None:
        raise ValueError(f"reranker {' '.join(experiment.config.reranker)} is an oracle: it needs qrels")
    run = {question.question_id: ranking}
    table = gold_labels(run, [question], experiment.qrels, len(ranking))
    return matrices(table, run, [question])[question.question_id]


def pool_maker(experiment: Experiment, reranker: Reranker, run: Run) -> Callable[[Question], Pool]:
    """The function that makes the pool of a question for a reranker."""
    texts, oracle = passages(experiment), bool(getattr(reranker, "oracle", False))
    raw = search(experiment) if getattr(reranker, "aspect_rankings", False) else {}

    def pool(question: Question) -> Pool:
        ranking = run[question.question_id]
        aspects = experiment.aspects.get(question.question_id, ())
        return Pool(
            Query(question.question_id, question.question_id, question.text),
            ranking,
            tuple(texts([hit.passage_id for hit in ranking])),
            aspects,
            tuple(raw.get(aspect.query_id, ()) for aspect in aspects) if raw else (),
            oracle_labels(experiment, question, ranking) if oracle else None,
        )

    return pool


def _by_corpus(corpus: Corpus, queries: Sequence[Query]) -> list[tuple[Corpus, list[Query]]]:
    """The queries grouped by the corpus that their question is searched in."""
    groups: dict[str, tuple[Corpus, list[Query]]] = {}
    for query in queries:
        view = corpus.for_question(query.question_id)
        groups.setdefault(view.fingerprint, (view, []))[1].append(query)
    return list(groups.values())


def _merge_parts(experiment: Experiment) -> Callable[[list[dict[str, Ranking]]], dict[str, Ranking]]:
    if not getattr(experiment.retriever, "local_scores", False):
        return joined
    depth = experiment.config.depth
    return lambda parts: {
        query.query_id: best_first((hit for part in parts for hit in part.get(query.query_id, ())), depth)
        for query in experiment.queries
    }


def _slice(items: Sequence[T], part: tuple[int, int]) -> Sequence[T]:
    i, n = part
    return items[len(items) * i // n : len(items) * (i + 1) // n]


def _bar(items: Sequence[T], stage: str) -> Iterable[T]:
    return cast("Iterable[T]", tqdm(items, desc=stage, disable=None, leave=False))
