"""Error-aware scores of a result (``--labelled-pairs``): a second line under the table, never the headline.

error_aware.json lies beside scores.json and is a function of labels, run, labelled pairs, judge, metrics and seed. What
the scores mean, and what they assume, stands in docs/error-aware-scores.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.config import existing
from benchmarks.experiment import Experiment
from benchmarks.results import dump, read_final_run, read_labels
from benchmarks.tables import aligned, shown
from corpora.artefacts import content_hash, write_atomic
from corpora.fingerprint import fingerprint
from evaluator.correction import Correction
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
    experiment: Experiment, folder: Path, metrics: Sequence[str], pairs: Sequence[LabelledPair]
) -> dict[str, Any]:
    """The content of error_aware.json, which is written.

    Args:
        experiment: With a judge.
        folder: Of the finished result.
        metrics: Their names.
        pairs: Of ``people``.

    Raises:
        ValueError: In one line, why there are no such scores.
    """
    run, table = read_final_run(folder), read_labels(folder)
    if experiment.judge is None or run is None or table is None:
        raise TypeError("error-aware scores need a judged and finished result")
    name = fingerprint(experiment.judge)
    found = error_aware(
        list(map(parse, metrics)),
        table,
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
    document = {**made, "scores": _entries(found), "notes": list(found.notes)}
    before = _before(folder)
    kept = before["scores"] if all(before.get(key) == value for key, value in made.items()) else {}
    write_atomic(folder / FILE, dump({**document, "scores": {**kept, **_entries(found)}}))
    return document


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


def table(document: Mapping[str, Any]) -> str:
    """What is printed under the table of the result."""
    rows = [["metric", "judged", "corrected", "95% interval", "n", "unknown"]]
    for name, entry in document["scores"].items():
        interval = f"[{shown(name, entry['low'])}, {shown(name, entry['high'])}]"
        values = [shown(name, entry["judged"]), shown(name, entry["mean"]), interval]
        rows.append([name, *values, str(entry["n"]), str(entry["n_unknown"])])
    title = f"error-aware scores ({document['method']}): a second line, not the headline"
    return "\n".join(["", title, *aligned(rows), *document["notes"]])


def _before(folder: Path) -> dict[str, Any]:
    """What an earlier call has written; nothing where that cannot be read."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("scores"), dict) else {}


def _entries(found: Correction) -> dict[str, dict[str, float | int | None]]:
    return {
        each.metric: {
            "mean": _number(each.mean),
            "low": _number(each.low),
            "high": _number(each.high),
            "judged": _number(each.naive),
            "n": each.n,
            "n_unknown": each.n_unknown,
        }
        for each in found.scores
    }


def _number(value: float) -> float | None:
    return None if value != value else value  # NaN: undefined
