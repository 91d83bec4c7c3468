"""From a final run to numbers: the label table, the metrics that were asked for, and what stands in scores.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.pipeline import passages
from benchmarks.resolve import Experiment
from benchmarks.results import SCHEMA_VERSION, score_entry
from corpora.fingerprint import fingerprint
from corpora.types import Question, Ranking, Run, Stance
from evaluator.judgements import Counts, JudgementStore
from evaluator.labels import gold_labels, gold_pools, judged_labels, matrices
from evaluator.metrics import Metric, parse
from evaluator.statistics import by_perspectives, score_run
from evaluator.types import Scores

Matrix = NDArray[np.int8]


@dataclass(frozen=True)
class Labelled:
    """The labels of a run as metrics read them: one matrix per question, columns as ``--perspectives`` counts them."""

    labels: dict[str, Matrix]
    pools: dict[str, Matrix] | None
    stances: dict[str, tuple[Stance | None, ...]]


def chosen_metrics(experiment: Experiment) -> tuple[Metric, ...]:
    """The metrics of ``--metrics``, in the order given, each once; else the default set.

    Raises:
        ValueError: A metric is unknown, looks deeper than ``--depth``, or needs qrels that are not there.
    """
    config = experiment.config
    metrics = tuple(dict.fromkeys(parse(name) for name in config.metrics or default_metrics(experiment)))
    for metric in metrics:
        if metric.depth is not None and metric.depth > config.depth:
            raise ValueError(f"{metric} looks deeper than --depth {config.depth}: raise --depth")
        if metric.needs == "pool" and experiment.judge is not None:
            raise ValueError(f"{metric} has nothing to normalise by: it needs gold labels (--judge gold)")
    return metrics


def default_metrics(experiment: Experiment) -> list[str]:
    """The default set, at the cut-offs of ``--k``."""
    ks = sorted(set(experiment.config.k))
    gold = experiment.judge is None
    names = [f"{title}@{k}" for title in ("MRecall", "Precision") for k in ks]
    names += ["Precision@1", f"StRecall@{ks[0]}", f"{'alpha_nDCG' if gold else 'alpha_DCG'}@{ks[-1]}"]
    if any({"supporting", "opposing"} <= {p.stance for p in q.perspectives} for q in experiment.scored):
        names += [f"{title}@{ks[0]}" for title in ("OnlySupporting", "OnlyOpposing", "Both", "Neither")]
    if gold:
        names += ["CoverageDepth", f"Covered@{experiment.config.depth}", *(f"Judged@{k}" for k in ks)]
    return names


def label_table(experiment: Experiment, run: Run) -> tuple[pa.Table, Counts]:
    """The labels of a run: gold, or from the judge and the store."""
    questions = experiment.scored
    if experiment.judge is None:
        if experiment.qrels is None:
            raise TypeError("gold labels without qrels")
        table = gold_labels(run, questions, experiment.qrels)
        return table, Counts(needed=len(table))
    with tqdm(total=_pairs(run, questions), desc="judge", unit="pair", disable=None, leave=False) as bar:
        return judged_labels(
            run,
            questions,
            passages(experiment),
            experiment.judge,
            fingerprint(experiment.judge),
            JudgementStore(),
            stored_only=experiment.config.stored_only,
            progress=bar.update,
        )


def oracle_labels(experiment: Experiment, question: Question, ranking: Ranking) -> Matrix:
    """int8 (n, m): the gold labels of one question's pool, for rerankers that declare themselves oracles."""
    if experiment.qrels is None:
        raise ValueError(f"reranker {experiment.config.reranker!r} is an oracle: it needs qrels")
    run = {question.question_id: ranking}
    table = gold_labels(run, [question], experiment.qrels)
    return matrices(table, run, [question])[question.question_id]


def labelled(experiment: Experiment, run: Run, table: pa.Table) -> Labelled:
    """The matrices of a label table."""
    questions = experiment.scored
    labels = matrices(table, run, questions, experiment.config.threshold)
    stances = {q.question_id: tuple(p.stance for p in q.perspectives) for q in questions}
    pools = None if experiment.judge is not None else gold_pools(questions, experiment.qrels or {})
    if experiment.config.perspectives == "gold":
        return Labelled(labels, pools, stances)
    if experiment.qrels is None:
        raise ValueError("--perspectives relevant: only qrels can tell which perspectives have a relevant passage")
    kept = {name: (pool == 1).any(axis=0) for name, pool in gold_pools(questions, experiment.qrels).items()}
    return Labelled(
        {name: matrix[:, kept[name]] for name, matrix in labels.items()},
        None if pools is None else {name: pool[:, kept[name]] for name, pool in pools.items()},
        {name: tuple(s for s, keep in zip(each, kept[name], strict=True) if keep) for name, each in stances.items()},
    )


def score(
    experiment: Experiment, run: Run, table: pa.Table, metrics: Sequence[Metric]
) -> tuple[dict[str, object], list[Scores]]:
    """What stands in scores.json, and the scores over all questions with their per-question values."""
    questions, data = experiment.scored, labelled(experiment, run, table)
    groups = {question.question_id: question.group for question in questions}
    overall = _scores(experiment, data, metrics, groups, macro=False)
    m_of_question = {name: matrix.shape[1] for name, matrix in data.labels.items()}
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "config": experiment.identity,
        "questions": {
            "n": len(questions),
            "not_applicable": list(experiment.not_applicable),
            "without_passages": [q.question_id for q in questions if not run.get(q.question_id)],
        },
        "labels": _label_counts(table),
        "scores": {each.metric: score_entry(each) for each in overall},
        "by_perspectives": {each.metric: _breakdown(each, m_of_question) for each in overall},
    }
    names = list(dict.fromkeys(groups.values()))
    if len(names) > 1 or experiment.task.macro:
        document["groups"] = {
            name: {each.metric: score_entry(each) for each in _group(experiment, data, metrics, groups, name)}
            for name in names
        }
        macro = _scores(experiment, data, metrics, groups, macro=True)
        document["macro"] = {each.metric: score_entry(each) for each in macro}
    return document, overall


def _scores(
    experiment: Experiment, data: Labelled, metrics: Sequence[Metric], groups: Mapping[str, str], *, macro: bool
) -> list[Scores]:
    seed = experiment.config.seed
    return score_run(
        metrics, data.labels, pools=data.pools, stances=data.stances, groups=groups, macro=macro, seed=seed
    )


def _group(
    experiment: Experiment, data: Labelled, metrics: Sequence[Metric], groups: Mapping[str, str], name: str
) -> list[Scores]:
    ids = [question_id for question_id, group in groups.items() if group == name]
    part = Labelled(
        {each: data.labels[each] for each in ids},
        None if data.pools is None else {each: data.pools[each] for each in ids},
        {each: data.stances[each] for each in ids},
    )
    return _scores(experiment, part, metrics, dict.fromkeys(ids, name), macro=False)


def _breakdown(scores: Scores, m_of_question: Mapping[str, int]) -> dict[str, dict[str, float | int]]:
    return {str(m): {"mean": mean, "n": n} for m, (mean, n) in by_perspectives(scores, m_of_question).items()}


def _label_counts(table: pa.Table) -> dict[str, int]:
    counts = {str(each["values"]): int(each["counts"]) for each in pc.value_counts(table["status"]).to_pylist()}
    return {"pairs": len(table), **{status: counts.get(status, 0) for status in ("ok", "unparsed", "unjudged")}}


def _pairs(run: Run, questions: Sequence[Question]) -> int:
    return sum(len(run.get(question.question_id, ())) * len(question.perspectives) for question in questions)
