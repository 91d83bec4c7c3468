"""Keys of the stages' artefacts, and what of a run is done: without running anything, and without heavy imports.

    expand -> search -> rerank -> judge -> score

Search and rerank leave artefacts in the cache, each keyed by exactly its own inputs, so that runs that need the same
one share it. Judging leaves judgements in the store; scoring leaves the folder of the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resolve import Experiment
from corpora.artefacts import find_artefact, list_artefacts
from corpora.fingerprint import describe, digest, fingerprint

SEARCH_VERSION = 1
RERANK_VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a plan: what it does, and whether its result lies there already."""

    stage: str
    done: bool
    what: str


def search_key(experiment: Experiment) -> str:
    """The key of the raw rankings: retriever, corpus, queries and depth."""
    if experiment.corpus is None or experiment.retriever is None:
        raise TypeError("a run file is not searched")
    return digest(
        {
            "version": SEARCH_VERSION,
            "retriever": fingerprint(experiment.retriever),
            "corpus": experiment.corpus.fingerprint,
            "queries": [[q.query_id, q.question_id, q.text, q.origin] for q in experiment.queries],
            "depth": experiment.config.depth,
        }
    )


def rerank_key(experiment: Experiment) -> str:
    """The key of the reranked rankings: what went in, the groups, and the reranker."""
    identity = experiment.identity
    return digest(
        {
            "version": RERANK_VERSION,
            "pools": identity["retriever"] if experiment.run_path else search_key(experiment),
            "corpus": identity["corpus"],
            "questions": [[q.question_id, q.text, q.group] for q in experiment.questions],
            "reranker": describe(experiment.reranker),
            "labels": [identity["task"], identity["qrels"]] if getattr(experiment.reranker, "oracle", False) else None,
        }
    )


def part_key(key: str, part: tuple[int, int]) -> str:
    """The key of part i (from 0) of n of an artefact."""
    return f"{key}.{part[0] + 1}-of-{part[1]}"


def parts_done(stage: str, key: str) -> Sequence[str]:
    """The keys of a complete set of parts, in order; empty where no set is complete."""
    sets: dict[int, set[int]] = {}
    for name in list_artefacts(stage):
        if match := re.fullmatch(rf"{re.escape(key)}\.(\d+)-of-(\d+)", name):
            sets.setdefault(int(match[2]), set()).add(int(match[1]) - 1)
    for n, parts in sorted(sets.items()):
        if len(parts) == n:
            return [part_key(key, (i, n)) for i in range(n)]
    return []


def made(stage: str, key: str) -> bool:
    """Whether an artefact is there, whole or in a complete set of parts."""
    return find_artefact(stage, key) is not None or bool(parts_done(stage, key))


def result_folder(experiment: Experiment) -> Path:
    """``<output>/<task>/<corpus>/<retriever>[+<reranker>]-<hash>``: a function of the resolved configuration."""
    config = experiment.config
    system = "+".join(name for name in (experiment.retriever_name, config.reranker) if name)
    folder = Path(config.output).expanduser() / safe(experiment.task.name) / safe(experiment.corpus_name)
    return folder / f"{safe(system)}-{digest(experiment.identity)[:10]}"


def safe(name: str) -> str:
    """The name with everything that a file system might not like replaced."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.") or "unnamed"


def plan(experiment: Experiment) -> list[Step]:
    """What a run would do, stage by stage, and what of it is done already."""
    pending = getattr(experiment.corpus, "pending", None)
    waiting = pending() if callable(pending) else None
    if waiting is not None:
        return [Step("corpus", False, waiting), *_unknown(experiment)]
    folder = result_folder(experiment)
    labelled = (folder / "labels.parquet").exists()
    steps = [_search_step(experiment)]
    if experiment.reranker is not None:
        steps.append(Step("rerank", made("rerank", rerank_key(experiment)), f"reranker {experiment.config.reranker}"))
    steps.append(Step("judge", labelled, _judging(experiment)))
    steps.append(Step("score", (folder / "scores.json").exists(), f"result in {folder}"))
    return steps


def _search_step(experiment: Experiment) -> Step:
    if experiment.run_path is not None:
        return Step("search", True, f"given by the run file {experiment.run_path}")
    what = f"{len(experiment.queries)} queries, {len(experiment.corpus or ())} passages, {experiment.config.retriever}"
    return Step("search", made("search", search_key(experiment)), what)


def _unknown(experiment: Experiment) -> list[Step]:
    config = experiment.config
    steps = [Step("search", False, f"{len(experiment.queries)} queries, {config.retriever}")]
    if experiment.reranker is not None:
        steps.append(Step("rerank", False, f"reranker {config.reranker}"))
    steps.append(Step("judge", False, _judging(experiment)))
    return [*steps, Step("score", False, f"result below {config.output}")]


def _judging(experiment: Experiment) -> str:
    pairs = sum(len(question.perspectives) for question in experiment.scored) * experiment.config.depth
    if experiment.judge is None:
        return f"gold labels for at most {pairs} pairs: costs nothing"
    cost = getattr(experiment.judge, "cost_usd_per_pair", None)
    price = "" if cost is None else f", at most {pairs * cost:.2f} USD"
    return f"judge {experiment.config.judge}: at most {pairs} pairs{price}; those in the store are free"
