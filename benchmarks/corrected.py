"""Error-aware scores of a result (``--labelled-pairs``): a second line under the table, never the headline.

error_aware.json lies beside scores.json, has its metrics, and is a function of labels, run, labelled pairs, judge and
seed. What the scores mean, and what they assume, stands in docs/error-aware-scores.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.config import existing
from benchmarks.experiment import Experiment
from benchmarks.results import dump, read_final_run, read_labels
from benchmarks.tables import aligned, shown
from corpora.artefacts import content_hash, write_atomic
from corpora.fingerprint import fingerprint
from evaluator.correction import CorrectedScores
from evaluator.error_aware import error_aware
from evaluator.judgements import JudgementStore, judgement_key
from evaluator.metrics import parse
from evaluator.pairs import LabelledPair, read_pairs

FILE = "error_aware.json"
SCHEMA_VERSION = 1


def people(experiment: Experiment) -> list[LabelledPair]:
    """The pairs of ``--labelled-pairs``, read before anything long begins.

    Raises:
        ValueError: The file is wrong, or these labels have no judge's errors in them.
    """
    config = experiment.config
    path = existing(config.labelled_pairs or "", "--labelled-pairs")
    if experiment.judge is None:
        raise ValueError("--labelled-pairs measures a judge's errors, and gold labels have no judge: give --judge NAME")
    if config.perspectives != "gold":
        raise ValueError("--labelled-pairs counts all perspectives of a question: leave out --perspectives relevant")
    return read_pairs(path, unlabelled=True)


def correct(
    experiment: Experiment, folder: Path, scores: Mapping[str, Any], pairs: Sequence[LabelledPair]
) -> dict[str, Any]:
    """The content of error_aware.json, which is written: all metrics that scores.json has.

    Args:
        experiment: With a judge.
        folder: Of the finished result.
        scores: scores.json.
        pairs: Of ``people``.

    Raises:
        ValueError: In one line, why there are no such scores.
    """
    run, known = read_final_run(folder), read_labels(folder)
    if experiment.judge is None or run is None or known is None:
        raise TypeError("error-aware scores need a judged and finished result")
    name = fingerprint(experiment.judge)
    found = error_aware(
        list(map(parse, scores["scores"])),
        known,
        run,
        experiment.scored,
        [each for each in pairs if each.label is not None],
        experiment.judge,
        name,
        JudgementStore(),
        threshold=experiment.config.threshold,
        macro=experiment.task.macro,
        seed=experiment.config.seed,
    )
    path = Path(experiment.config.labelled_pairs or "").expanduser()
    made = {"schema_version": SCHEMA_VERSION, "judge": name, "pairs": content_hash(path), "method": found.method}
    text = dump({**made, "scores": {each.metric: _entry(each) for each in found.scores}, "notes": found.notes})
    write_atomic(folder / FILE, text)
    return cast("dict[str, Any]", json.loads(text))


def plan(experiment: Experiment, pairs: Sequence[LabelledPair]) -> str:
    """One line for ``--dry-run``: the pairs of ``people``, and how many the judge must still answer."""
    judge = experiment.judge
    if judge is None:
        raise TypeError("error-aware scores need a judge")
    known = [each for each in pairs if each.label is not None]
    keys = {judgement_key(fingerprint(judge), judge.render(each.pair)) for each in known}
    missing = sum(each is None for each in JudgementStore().get_many(sorted(keys)))
    supports = sum(bool(each.label) for each in known)
    return f"{len(known)} of {len(pairs)} pairs have labels ({supports} supports), {missing} of them to judge"


def table(document: Mapping[str, Any], metrics: Sequence[str]) -> str:
    """What is printed under the table of the result.

    Args:
        document: Of ``correct``.
        metrics: Those that were asked for; what has no corrected value is left out.
    """
    rows = [["metric", "judged", "corrected", "95% interval", "n", "unknown"]]
    for name in (each for each in metrics if each in document["scores"]):
        entry = document["scores"][name]
        interval = f"[{shown(name, entry['low'])}, {shown(name, entry['high'])}]"
        values = [shown(name, entry["judged"]), shown(name, entry["mean"]), interval]
        rows.append([name, *values, str(entry["n"]), str(entry["n_unknown"])])
    title = f"error-aware scores ({document['method']}): a second line, not the headline"
    return "\n".join(["", title, *aligned(rows), *document["notes"]])


def _entry(scores: CorrectedScores) -> dict[str, float | int]:
    return {
        "mean": scores.mean,
        "low": scores.low,
        "high": scores.high,
        "judged": scores.naive,
        "n": scores.n,
        "n_unknown": scores.n_unknown,
    }
