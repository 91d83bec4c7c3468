"""From a final run to numbers: the label table, the metrics that were asked for, and what stands in scores.json."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.experiment import Experiment
from benchmarks.families import same_family
from benchmarks.pipeline import passages
from benchmarks.plan import SCHEMA_VERSION
from benchmarks.results import score_entry
from corpora.fingerprint import fingerprint
from corpora.types import Run, Stance
from evaluator.depths import Depths, needed
from evaluator.judgements import Counts, JudgementStore
from evaluator.labels import check_metrics, gold_labels, gold_pools, judged_labels, matrices, table_depths
from evaluator.metrics import Metric, parse, supported
from evaluator.statistics import Value, by_perspectives, question_values, summarise
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
    metrics = {metric.name: metric for metric in map(parse, config.metrics or default_metrics(experiment))}
    for metric in metrics.values():
        if metric.depth is not None and metric.depth > config.depth:
            raise ValueError(f"{metric} looks deeper than --depth {config.depth}: raise --depth")
        if metric.needs == "pool" and experiment.judge is not None:
            raise ValueError(f"{metric} has nothing to normalise by: it needs gold labels (--judge gold)")
    return tuple(metrics.values())


def default_metrics(experiment: Experiment) -> list[str]:
    """The default set, at the cut-offs of ``--k``.

    CoverageDepth and Covered are in it for gold labels only. A judge would be asked three times as often for them, even
    lazily (Perspectrum, top 100: 45,814 pairs, against 14,450 for the rest); who wants them names them in --metrics.
    """
    ks = experiment.config.cutoffs
    gold = experiment.judge is None
    names = [f"{title}@{k}" for title in ("MRecall", "Precision") for k in ks]
    names += ["Precision@1", f"StRecall@{ks[0]}", f"{'alpha_nDCG' if gold else 'alpha_DCG'}@{ks[-1]}"]
    if any(sorted(str(p.stance) for p in q.perspectives) == ["opposing", "supporting"] for q in experiment.scored):
        names += [f"{title}@{ks[0]}" for title in ("OnlySupporting", "OnlyOpposing", "Both", "Neither")]
    if gold:
        names += ["CoverageDepth", f"Covered@{experiment.config.depth}"]
    return [*names, *(f"Judged@{k}" for k in ks)]


def label_table(
    experiment: Experiment, run: Run, metrics: Iterable[Metric], known: pa.Table | None = None
) -> tuple[pa.Table, Counts]:
    """The labels of a run: gold, or from the judge and the store, as deep as the metrics look.

    Args:
        experiment: Says where labels come from.
        run: The final run.
        metrics: What will be computed.
        known: Labels that the result has already: they are kept, and only what the metrics miss is added.

    Raises:
        ValueError: With ``--stored-only``: a metric needs labels that were left out of ``known``, and the store lacks.
    """
    depths = label_depths(experiment, metrics)
    if known is not None and table_depths(known).cover(depths):
        return known, Counts()
    if experiment.judge is None:
        if experiment.qrels is None:
            raise TypeError("gold labels without qrels")
        table = gold_labels(run, experiment.scored, experiment.qrels, depths.reach)
        return table, Counts(needed=len(table))
    return _judged(experiment, run, depths, known, experiment.config.stored_only)


def _judged(
    experiment: Experiment, run: Run, depths: Depths, known: pa.Table | None, stored_only: bool
) -> tuple[pa.Table, Counts]:
    judge = experiment.judge
    if judge is None:
        raise TypeError("gold labels need no judge")
    start = 0 if known is None else table_depths(known).full
    # How many pairs lazy judging takes is known only when it is done.
    total = sum(len(run.get(q.question_id, ())[start : depths.reach]) * len(q.perspectives) for q in experiment.scored)
    expected = None if depths.lazy else total
    with tqdm(total=expected, desc="judge", unit="pair", disable=None, leave=False) as bar:
        return judged_labels(
            run,
            experiment.scored,
            depths,
            passages(experiment),
            judge,
            fingerprint(judge),
            JudgementStore(),
            known=known,
            threshold=experiment.config.threshold,
            stored_only=stored_only,
            progress=bar.update,
        )


def label_depths(experiment: Experiment, metrics: Iterable[Metric]) -> Depths:
    """How many ranks are labelled: for a judge only what the metrics consult; gold labels cost nothing."""
    whole = experiment.config.depth
    return Depths(whole, whole) if experiment.judge is None else needed(metrics, whole)


def count_stored(experiment: Experiment, run: Run, metrics: Iterable[Metric]) -> tuple[int, int]:
    """How many pairs a judge is needed for at most, and how many of these are stored."""
    _, counts = _judged(experiment, run, label_depths(experiment, metrics), None, stored_only=True)
    return counts.needed, counts.reused


def holes_filled(table: pa.Table) -> bool:
    """Whether the store now has judgements that a ``--stored-only`` run had to do without."""
    keys = table.filter(pc.equal(table["status"], "unjudged"))["key"].drop_null().to_pylist()
    return bool(keys) and bool(JudgementStore().lookup(keys)[0].any())


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
    kept = {name: supported(pool) for name, pool in gold_pools(questions, experiment.qrels).items()}
    return Labelled(
        {name: matrix[:, kept[name]] for name, matrix in labels.items()},
        None if pools is None else {name: pool[:, kept[name]] for name, pool in pools.items()},
        {name: tuple(s for s, keep in zip(each, kept[name], strict=True) if keep) for name, each in stances.items()},
    )


def score(
    experiment: Experiment, run: Run, table: pa.Table, metrics: Sequence[Metric]
) -> tuple[dict[str, object], list[Scores], dict[str, int]]:
    """What stands in scores.json, the scores over all questions, and the number of perspectives of each question."""
    check_metrics(table, metrics, experiment.config.depth)
    questions, data = experiment.scored, labelled(experiment, run, table)
    values = question_values(metrics, data.labels, pools=data.pools, stances=data.stances)
    groups = {question.question_id: question.group for question in questions}
    overall = summaries(experiment, metrics, values, groups)
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
    if same := same_family(experiment):
        document["same_family"] = same
    names = list(dict.fromkeys(groups.values()))
    if len(names) > 1 or experiment.task.macro:
        document["groups"] = {
            name: {
                each.metric: score_entry(each)
                for each in summaries(experiment, metrics, values, {q: g for q, g in groups.items() if g == name})
            }
            for name in names
        }
        macro = summaries(experiment, metrics, values, groups, macro=True)
        document["macro"] = {each.metric: score_entry(each) for each in macro}
    return document, overall, m_of_question


def summaries(
    experiment: Experiment,
    metrics: Sequence[Metric],
    values: Mapping[str, Mapping[str, Value]],
    groups: Mapping[str, str],
    macro: bool = False,
) -> list[Scores]:
    """The metrics over the questions of these groups."""
    seed = experiment.config.seed
    return [
        summarise(metric, {name: values[metric.name][name] for name in groups}, groups, macro, seed)
        for metric in metrics
    ]


def _breakdown(scores: Scores, m_of_question: Mapping[str, int]) -> dict[str, dict[str, float | int]]:
    return {str(m): {"mean": mean, "n": n} for m, (mean, n) in by_perspectives(scores, m_of_question).items()}


def _label_counts(table: pa.Table) -> dict[str, int]:
    counts = {str(each["values"]): int(each["counts"]) for each in pc.value_counts(table["status"]).to_pylist()}
    if len(table) and not counts.get("ok"):
        warnings.warn(f"not one of {len(table)} labels is known: these scores say nothing", stacklevel=2)
    known = {status: counts.get(status, 0) for status in ("ok", "unparsed", "unjudged")}
    depths, skipped = table_depths(table), counts.get("skipped", 0)
    lazy = {"full_depth": depths.full, "skipped": skipped} if depths.lazy else {}
    return {"depth": depths.reach, "pairs": len(table) - skipped, **known, **lazy}
