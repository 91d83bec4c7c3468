"""Where a run lives: run.trec.gz, labels.parquet, scores.json, per_question.csv and provenance.json in one folder.

Each file appears by one rename. scores.json is written last, so that its presence means a finished run, and it is a
function of the configuration, the labels and the metrics asked so far: byte for byte the same every time.
"""

from __future__ import annotations

import csv
import gzip
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.experiment import Experiment
from benchmarks.pipeline import passages
from benchmarks.plan import safe
from corpora.artefacts import atomic_file, write_atomic
from corpora.files import read_run, write_berds, write_dpr, write_run
from corpora.types import Question, Run
from evaluator.labels import table_depths, table_threshold
from evaluator.types import Scores

DIGITS = 12
"""Decimals that are written: one more, and processors of another kind would write other last digits."""
PACKAGES = ("bm25s", "numpy", "pyarrow", "PyStemmer", "rank-bm25", "retrieval-diversity")


def write_final_run(folder: Path, experiment: Experiment, run: Run) -> None:
    """Write run.trec.gz and, beside it, its ir_metadata."""
    system = " + ".join(experiment.system)
    method = {name: experiment.identity[name] for name in ("expander", "retriever", "reranker")}
    metadata = {"tag": system, "method": method, "data": experiment.identity["task"]}
    write_run(folder / "run.trec.gz", run, _tag(experiment), metadata)


def check_exports(experiment: Experiment) -> None:
    """Raises ValueError where an export would go over what is no plain file, or over something that this run reads."""
    config = experiment.config
    corpus = getattr(experiment.task, "corpus", None)
    read = {Path(path).expanduser().resolve() for path in (config.run, config.qrels, corpus, config.corpus) if path}
    folder = getattr(experiment.task, "path", None)
    for path in config.export:
        target = Path(path).expanduser()
        problem = None
        if target.is_symlink() or (target.exists() and not target.is_file()):
            problem = "it is there and no plain file: give another path"
        elif not target.parent.is_dir():
            problem = f"there is no folder {target.parent}: make it first"
        elif target.resolve() in read or (folder is not None and target.exists() and target.parent.samefile(folder)):
            problem = "it belongs to what this run reads: choose another name"
        if problem:
            raise ValueError(f"--export {path}: {problem}")


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
    return "+".join(map(safe, experiment.system))


def write_scores(folder: Path, scores: Mapping[str, object]) -> dict[str, Any]:
    """Write scores.json, the last of the files, so that it marks a finished run; returns what a reader will see."""
    text = dump(scores)
    write_atomic(folder / "scores.json", text)
    return cast("dict[str, Any]", json.loads(text))


def write_labels(folder: Path, table: pa.Table, *, replace: bool) -> pa.Table:
    """Write labels.parquet and return the labels that hold: another process's, if it was first and none is replaced."""
    path, own = folder / "labels.parquet", folder / f".tmp-labels-{os.getpid()}.parquet"
    with atomic_file(own) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    try:
        if replace:
            own.replace(path)
        else:
            os.link(own, path)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        theirs = read_labels(folder)
        return table if theirs is None else theirs
    finally:
        own.unlink(missing_ok=True)
    return table


def read_labels(folder: Path) -> pa.Table | None:
    """The table of labels.parquet; None where there is none.

    Raises:
        ValueError: The file is damaged.
    """
    path = folder / "labels.parquet"
    if not path.exists():
        return None
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        table_depths(table), table_threshold(table)
        known = table["status"].to_numpy() == "ok"
        probability = table["probability"].to_numpy()
        if (
            not (np.isnan(probability) == ~known).all()
            or not ((probability[known] >= 0) & (probability[known] <= 1)).all()
        ):
            raise ValueError("a probability does not fit its status")
    except (AttributeError, KeyError, OSError, TypeError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{path} is damaged: make the result anew with --overwrite") from error
    return table


def read_final_run(folder: Path) -> Run | None:
    """The run of run.trec.gz, its order as it was scored; None where there is none."""
    path = folder / "run.trec.gz"
    if not path.exists():
        return None
    with gzip.open(path) as file:
        empty = not file.read(1)
    return {} if empty else read_run(path).run


def dump(scores: Mapping[str, object]) -> str:
    """The text of scores.json: keys sorted, numbers as they are, undefined ones as null."""
    return json.dumps(_plain(scores), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


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


def write_per_question(
    folder: Path, questions: Sequence[Question], n_perspectives: Mapping[str, int], scores: Sequence[Scores]
) -> None:
    """Write per_question.csv: a row per question, a column per metric; undefined values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["question_id", "group", "n_perspectives", *(each.metric for each in scores)])
    for question in questions:
        values = [each.per_question[question.question_id] for each in scores]
        shown = ["" if math.isnan(value) else repr(round(float(value), DIGITS)) for value in values]
        writer.writerow([question.question_id, question.group, n_perspectives[question.question_id], *shown])
    write_atomic(folder / "per_question.csv", text.getvalue())


def write_provenance(folder: Path, entry: Mapping[str, object]) -> None:
    """Add an entry to provenance.json: when, where and with what this result was made."""
    path = folder / "provenance.json"
    try:
        history = list(json.loads(path.read_text(encoding="utf-8"))["history"])
    except (OSError, ValueError, KeyError, TypeError):
        history = []
    write_atomic(path, json.dumps({"history": [*history, entry]}, indent=2, sort_keys=True, default=str) + "\n")


def ledgers(experiment: Experiment) -> dict[str, object]:
    """Requests, tokens and cost of the plug-ins that asked a language model's server in this process."""
    plugins: dict[str, object] = {"expander": experiment.expander, "judge": experiment.judge}
    plugins |= {f"reranker {i}": each for i, each in enumerate(experiment.rerankers, 1)}
    found = {name: getattr(plugin, "ledger", None) for name, plugin in plugins.items()}
    return {name: ledger for name, ledger in found.items() if ledger is not None}


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


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, DIGITS) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
