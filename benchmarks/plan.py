"""Keys of the stages' artefacts, and what of a run is done: without running anything, and without heavy imports.

    expand -> search -> rerank -> judge -> score

Search and rerank leave artefacts in the cache, each keyed by exactly its own inputs, so that runs that need the same
one share it. Judging leaves judgements in the store; scoring leaves the folder of the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.expansion import is_expanded
from benchmarks.experiment import Experiment
from corpora.artefacts import find_artefact, list_artefacts
from corpora.base import Corpus
from corpora.fingerprint import describe, digest, fingerprint
from corpora.types import Run

SEARCH_VERSION = 1
RERANK_VERSION = 1
SCHEMA_VERSION = 1
FILES = ("run.trec.gz", "labels.parquet", "per_question.csv", "provenance.json", "scores.json")
"""What a finished result consists of; scores.json is written last."""


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


def rerank_key(experiment: Experiment, step: int, pools: Run) -> str:
    """The key of the rankings that reranker number ``step`` makes: what goes in, and the reranker."""
    if experiment.corpus is None and experiment.run_path is None:
        raise TypeError("no passages to rerank")
    reranker = experiment.rerankers[step]
    key = {
        "version": RERANK_VERSION,
        "reranker": describe(reranker),
        "corpus": None if experiment.corpus is None else experiment.corpus.fingerprint,
        "run": None if experiment.run_path is None else experiment.identity["retriever"],
        "pools": [
            [q.question_id, q.text, q.group, [[hit.passage_id, hit.score] for hit in pools[q.question_id]]]
            for q in experiment.searched
        ],
        "labels": [experiment.identity["task"], experiment.qrels_fingerprint]
        if getattr(reranker, "oracle", False)
        else None,
    }
    if experiment.aspects:
        key["aspects"] = [[[a.query_id, a.text] for a in aspects] for aspects in experiment.aspects.values()]
    if getattr(reranker, "aspect_rankings", False):
        key["search"] = search_key(experiment)
    return digest(key)


def part_key(key: str, part: tuple[int, int]) -> str:
    """The key of part i (from 0) of n of an artefact."""
    return f"{key}.{part[0] + 1}-of-{part[1]}"


def parts_of(stage: str, key: str) -> dict[str, bool]:
    """The keys of an artefact's parts, in order, and which of them are made; empty where there is none.

    Where parts of several divisions lie about, the division of which the greatest share is made counts.
    """
    sets: dict[int, set[int]] = {}
    for name in list_artefacts(stage):
        if match := re.fullmatch(rf"{re.escape(key)}\.(\d+)-of-(\d+)", name):
            sets.setdefault(int(match[2]), set()).add(int(match[1]) - 1)
    if not sets:
        return {}
    n = max(sets, key=lambda n: (len(sets[n]) / n, -n))
    return {part_key(key, (i, n)): i in sets[n] for i in range(n)}


def made(stage: str, key: str) -> bool:
    """Whether an artefact is there, whole or in a complete set of parts."""
    parts = parts_of(stage, key)
    return find_artefact(stage, key) is not None or (bool(parts) and all(parts.values()))


def result_folder(experiment: Experiment) -> Path:
    """``<output>/<task>/<corpus>/<retriever>[+<reranker>]-<hash>``: a function of the resolved configuration."""
    config = experiment.config
    system = "+".join(experiment.system)
    folder = Path(config.output).expanduser() / safe(experiment.task.name) / safe(experiment.corpus_name)
    return folder / f"{safe(system)}-{digest(essence(experiment.identity))[:10]}"


def essence(identity: Mapping[str, object]) -> dict[str, object]:
    """The identity without the names of plug-ins, and without flags that are not set.

    So a flag of a later version moves no old result. What plug-ins say of themselves stays as it is: an argument may be
    called ``name``, and None, False and 0 are different arguments.
    """
    return {flag: _nameless(value) for flag, value in identity.items() if value is not None and value is not False}


def _nameless(value: object) -> object:
    if isinstance(value, list):
        return [_nameless(each) for each in value]
    if isinstance(value, Mapping):
        return {key: each for key, each in value.items() if key != "name"}
    return value


def read_scores(folder: Path) -> dict[str, Any] | None:
    """scores.json, or None where the run is not finished.

    Raises:
        ValueError: The file is damaged, or of another version of its form.
    """
    if not all((folder / name).exists() for name in FILES):
        return None
    path = folder / "scores.json"
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): make the result anew with --overwrite") from error
    if not isinstance(scores, dict) or scores.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path}: expected schema_version {SCHEMA_VERSION}: make the result anew with --overwrite")
    entries = scores.get("scores")
    whole = isinstance(entries, dict) and all(isinstance(each, dict) and "mean" in each for each in entries.values())
    if not whole or not all(isinstance(scores.get(part), dict) for part in ("config", "questions", "labels")):
        raise ValueError(f"{path} is damaged: make the result anew with --overwrite")
    return scores


def safe(name: str) -> str:
    """The name with everything that a file system might not like replaced."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.") or "unnamed"


def plan(
    experiment: Experiment,
    metrics: Collection[str],
    reranking: Callable[[], Sequence[Step]],
    judging: Callable[[], Step],
) -> list[Step]:
    """What a run would do, stage by stage, and what of it is done already.

    Args:
        experiment: What is asked for.
        metrics: Names of the metrics that are asked for.
        reranking: Says what each reranker takes, once the rankings are there.
        judging: Says what there is to judge, once the rankings are there.
    """
    pending = getattr(experiment.corpus, "pending", None)
    waiting = pending() if callable(pending) else None
    if waiting is not None:
        return [
            Step("corpus", False, waiting),
            *_expand_step(experiment),
            *_index_step(experiment, None),
            *_later(experiment),
        ]
    folder = result_folder(experiment)
    scores = read_scores(folder)
    finished = scores is not None and set(metrics) <= scores["scores"].keys()
    first = _expand_step(experiment)
    if not all(step.done for step in first):
        return [*first, *_index_step(experiment, experiment.corpus), *_later(experiment)]
    search = _search_step(experiment)
    if not search.done:
        return [*first, *_index_step(experiment, experiment.corpus), search, *_later(experiment)[1:]]
    done = [Step("rerank", True, f"reranker {name}") for name in experiment.config.reranker]
    reranks = done if finished else reranking()
    return [*first, search, *reranks, judging(), Step("score", finished, f"result in {folder}")]


def _expand_step(experiment: Experiment) -> list[Step]:
    """What expanding costs, where the expander can tell (``estimate``)."""
    expander, queries = experiment.expander, experiment.own_queries
    if expander is None:
        return []
    done = is_expanded(expander, queries)
    what = f"{len(queries)} queries, {experiment.config.expander} for {experiment.config.expand_for}"
    tell = getattr(expander, "estimate", None)
    return [Step("expand", done, f"{what}: {tell(queries)}" if callable(tell) and not done else what)]


def _index_step(experiment: Experiment, corpus: Corpus | None) -> list[Step]:
    """What indexing costs, where the retriever can tell (``pending``) and the number of passages is known."""
    tell = getattr(experiment.retriever, "pending", None)
    expected = getattr(experiment.corpus, "expected", None)
    passages = len(corpus) if corpus is not None else expected() if callable(expected) else None
    what = tell(corpus, passages) if callable(tell) and passages else None
    return [Step("index", False, str(what))] if what else []


def _search_step(experiment: Experiment) -> Step:
    if experiment.run_path is not None:
        return Step("search", True, f"given by the run file {experiment.run_path}")
    key = search_key(experiment)
    what = f"{len(experiment.queries)} queries, {len(experiment.corpus or ())} passages, {experiment.config.retriever}"
    parts = parts_of("search", key)
    if parts and find_artefact("search", key) is None:
        what += f", {sum(parts.values())} of {len(parts)} parts"
    return Step("search", made("search", key), what)


def _later(experiment: Experiment) -> list[Step]:
    """The steps of a run of which nothing can be known yet."""
    config = experiment.config
    n = len(experiment.own_queries)
    queries = f"{n} questions, expanded" if _unknown_queries(experiment) else f"{len(experiment.queries)} queries"
    steps = [Step("search", False, f"{queries}, {config.retriever}")]
    steps += [Step("rerank", False, f"reranker {name}") for name in config.reranker]
    pairs = sum(len(question.perspectives) for question in experiment.scored) * config.depth
    judge = f"judge {config.judge or 'to be chosen'}: at most {pairs} pairs"
    if experiment.judge is None and experiment.qrels is not None:
        judge = "gold labels"
    return [*steps, Step("judge", False, judge), Step("score", False, f"result below {config.output}")]


def _unknown_queries(experiment: Experiment) -> bool:
    """Whether the queries are not known before the expander has written them."""
    return experiment.expander is not None and not is_expanded(experiment.expander, experiment.own_queries)
