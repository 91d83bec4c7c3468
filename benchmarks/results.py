"""Where a run lives: run.trec.gz, labels.parquet, scores.json, per_question.csv and provenance.json in one folder.

Each file appears by one rename. scores.json is written last, so that its presence means a finished run, and it is a
function of the configuration, the labels and the metrics asked so far: byte for byte the same every time.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline import passages
from benchmarks.plan import safe
from benchmarks.resolve import Experiment
from corpora.artefacts import atomic_file, write_atomic
from corpora.files import write_berds, write_dpr, write_run
from corpora.types import Question, Run
from evaluator.types import Scores

SCHEMA_VERSION = 1
PACKAGES = ("bm25s", "numpy", "pyarrow", "PyStemmer", "rank-bm25", "retrieval-diversity")


def write_final_run(folder: Path, experiment: Experiment, run: Run) -> None:
    """Write run.trec.gz and, beside it, its ir_metadata."""
    system = " + ".join(name for name in (experiment.retriever_name, experiment.config.reranker) if name)
    method = {name: experiment.identity[name] for name in ("retriever", "reranker")}
    metadata = {"tag": system, "method": method, "data": experiment.identity["task"]}
    write_run(folder / "run.trec.gz", run, _tag(experiment), metadata)


def export(path: Path, experiment: Experiment, run: Run) -> None:
    """Write the final run to a path of the user's: .jsonl BERDS, .json DPR, anything else TREC; .gz compresses."""
    form = Path(path.name.removesuffix(".gz")).suffix
    if form not in (".jsonl", ".json"):
        write_run(path, run, _tag(experiment))
        return
    texts = passages(experiment)
    inside = {p.passage_id: p for ranking in run.values() for p in texts([hit.passage_id for hit in ranking])}
    write = write_berds if form == ".jsonl" else write_dpr
    write(path, run, experiment.scored, inside)


def _tag(experiment: Experiment) -> str:
    return "+".join(safe(name) for name in (experiment.retriever_name, experiment.config.reranker) if name)


def write_scores(folder: Path, scores: Mapping[str, object]) -> dict[str, Any]:
    """Write scores.json, the last of the files, so that it marks a finished run; returns what a reader will see."""
    text = dump(scores)
    write_atomic(folder / "scores.json", text)
    return cast("dict[str, Any]", json.loads(text))


def write_labels(folder: Path, table: pa.Table) -> None:
    """Write labels.parquet."""
    with atomic_file(folder / "labels.parquet") as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_labels(folder: Path) -> pa.Table:
    """The table of labels.parquet."""
    return pq.read_table(folder / "labels.parquet")


def read_scores(folder: Path) -> dict[str, Any] | None:
    """scores.json, or None where the run is not finished.

    Raises:
        ValueError: The file is of another version of its form.
    """
    path = folder / "scores.json"
    if not path.exists():
        return None
    scores = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(scores, dict) or scores.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path}: expected schema_version {SCHEMA_VERSION}: make it anew with --overwrite")
    return scores


def dump(scores: Mapping[str, object]) -> str:
    """The text of scores.json: keys sorted, numbers as they are, undefined ones as null."""
    return json.dumps(_finite(scores), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def score_entry(scores: Scores) -> dict[str, object]:
    """One metric as it stands in scores.json."""
    return {
        "mean": scores.mean,
        "low": scores.low,
        "high": scores.high,
        "upper": scores.upper,
        "detectable": scores.detectable,
        "n": scores.n,
        "n_undefined": scores.n_undefined,
        "n_unjudged": scores.n_unjudged,
    }


def write_per_question(folder: Path, questions: Sequence[Question], scores: Sequence[Scores]) -> None:
    """Write per_question.csv: a row per question, a column per metric; undefined values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["question_id", "group", "n_perspectives", *(each.metric for each in scores)])
    for question in questions:
        values = [each.per_question[question.question_id] for each in scores]
        shown = ["" if math.isnan(value) else repr(float(value)) for value in values]
        writer.writerow([question.question_id, question.group, len(question.perspectives), *shown])
    write_atomic(folder / "per_question.csv", text.getvalue())


def write_provenance(folder: Path, entry: Mapping[str, object]) -> None:
    """Add an entry to provenance.json: when, where and with what this result was made."""
    path = folder / "provenance.json"
    try:
        history = json.loads(path.read_text(encoding="utf-8"))["history"]
    except (OSError, ValueError, KeyError):
        history = []
    write_atomic(path, json.dumps({"history": [*history, entry]}, indent=2, sort_keys=True, default=str) + "\n")


def surroundings() -> dict[str, object]:
    """Date, host, code revision and package versions, for provenance.json."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "code": _revision(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> dict[str, object]:
    """The commit of this code and whether it was changed since; unknown outside a git checkout."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            command = ["git", "-C", str(here), *arguments]  # arguments are ours, no shell
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
