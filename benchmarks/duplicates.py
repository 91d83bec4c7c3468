"""What duplicates in merged rankings would do to the scores (``--with-duplicates``): a comparison, never a run.

The code of BERDS merges the rankings of a question's expansions by taking turns, and keeps a passage each time that one
of them has it; the paper (Chen and Choi, 2024, https://arxiv.org/abs/2409.18110) leaves repetitions out, as every run
here does. with_duplicates.json lies beside scores.json, has the scores of the lists with repetitions, and changes no
other file. It needs no judgement: the first k of such a list are among the first k without repetitions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.experiment import Experiment
from benchmarks.pipeline import unmerged
from benchmarks.results import dump, read_final_run, read_labels, score_entry
from benchmarks.scoring import labelled, summaries
from benchmarks.tables import aligned, config_macro, shown
from corpora.artefacts import write_atomic
from corpora.types import Run
from evaluator.metrics import Metric, parse
from evaluator.statistics import question_values
from retrievers.merge import with_duplicates

FILE = "with_duplicates.json"
SCHEMA_VERSION = 1


def compare(experiment: Experiment, folder: Path, metrics: Sequence[str]) -> dict[str, Any]:
    """The content of with_duplicates.json, which is written.

    Args:
        experiment: Its expander's rankings are merged by taking turns, and not reranked.
        folder: Of the finished result.
        metrics: Their names; those that count the relevant passages of the whole corpus are left out, because a
            passage that is there twice would count as two of them.

    Raises:
        ValueError: The rankings are not those that the result was made of.
    """
    run, known = read_final_run(folder), read_labels(folder)
    if run is None or known is None:
        raise TypeError("a comparison needs a finished result")
    asked = [parse(name) for name in metrics]
    chosen = [metric for metric in asked if metric.needs == "ranking"]
    lists = _lists(experiment, run)
    data = labelled(experiment, run, known)
    labels = {name: data.labels[name][rows] for name, rows in lists.items()}
    values = question_values(chosen, labels, stances=data.stances)
    document = {
        "schema_version": SCHEMA_VERSION,
        "passages": sum(map(len, lists.values())),
        "left_out": [metric.name for metric in asked if metric.needs != "ranking"],
        "repeated": sum(len(rows) - len(set(rows)) for rows in lists.values()),
        **_entries(experiment, chosen, values),
    }
    text = dump(document)
    write_atomic(folder / FILE, text)
    return cast("dict[str, Any]", json.loads(text))


def table(document: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """What is printed under the table of the result.

    Args:
        document: Of ``compare``.
        scores: scores.json of the same result.
    """
    part = "macro" if config_macro(scores) else "scores"
    rows = [["metric", "each once", "duplicates", "95% interval", "n"]]
    for name, entry in document[part].items():
        interval = f"[{shown(name, entry['low'])}, {shown(name, entry['high'])}]"
        rows.append(
            [name, shown(name, scores[part][name]["mean"]), shown(name, entry["mean"]), interval, str(entry["n"])]
        )
    title = "with duplicates, as the code of BERDS merges: a comparison, not the headline, and in no run file"
    notes = [f"{document['repeated']} of {document['passages']} passages in these lists are repetitions."]
    if document["left_out"]:
        left_out = ", ".join(document["left_out"])
        notes.append(f"Left out, as they count the relevant passages of the whole corpus: {left_out}.")
    return "\n".join(["", title, *aligned(rows), *notes])


def _lists(experiment: Experiment, run: Run) -> dict[str, list[int]]:
    """question_id -> for each passage of the list with duplicates its rank in the run, from 0."""
    raw, found = unmerged(experiment), {}
    for question in experiment.scored:
        name = question.question_id
        ids = with_duplicates(raw[name], experiment.config.depth)
        ranks = {hit.passage_id: rank for rank, hit in enumerate(run.get(name, ()))}
        if list(dict.fromkeys(ids)) != list(ranks)[: len(set(ids))]:
            raise ValueError(
                f"--with-duplicates: the rankings of question {name!r} are not those of run.trec.gz: make the result "
                "anew with --overwrite"
            )
        found[name] = [ranks[each] for each in ids]
    return found


def _entries(experiment: Experiment, metrics: Sequence[Metric], values: Any) -> dict[str, object]:
    groups = {question.question_id: question.group for question in experiment.scored}
    parts = {"scores": summaries(experiment, metrics, values, groups)}
    if experiment.task.macro:
        parts["macro"] = summaries(experiment, metrics, values, groups, macro=True)
    return {part: {each.metric: score_entry(each) for each in found} for part, found in parts.items()}
