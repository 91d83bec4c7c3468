"""The document of an agreement as text: tables that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluator.agreement_statistics import MEASURES, TABLE_7

_HEADS = {
    "predicted_positive": "positive %",
    "accuracy": "accuracy %",
    "f1": "F1 %",
    "precision": "precision %",
    "recall": "recall %",
    "auc": "AUC",
    "kappa": "kappa",
    "ece": "calibration error",
    "accuracy_worst": "accuracy %",
    "f1_worst": "F1 %",
}
_PLAIN = ("auc", "kappa", "ece")
"""Measures that are not printed in percent."""
FEW = 30
"""In simulations with correlated pairs (tests/evaluator/test_agreement.py) 95 % intervals over 15 questions held the
truth in 90 to 92 % of cases, over 30 in 93 to 95 %; intervals over pairs in 73 to 90 %."""


def report(document: Mapping[str, Any], file: str) -> str:
    """The tables of a document, as one text.

    Args:
        document: As ``evaluator.agreement_results`` makes it.
        file: Where the pairs come from, as the title names it.
    """
    n, yes = document["pairs"], document["labelled_yes"]
    title = f"{file}: {n} pairs of {document['questions']} questions, {yes} labelled Yes ({100 * yes / n:.1f} %)"
    lines = [title, "", *_main_table(document), "", *_second_table(document)]
    lines += _unparsed(document)
    for each in document["differences"]:
        lines += ["", *_difference(each)]
    for each in document.get("probes", ()):
        lines += ["", *_probes(each)]
    return "\n".join([*lines, "", *_notes(document)])


def _main_table(document: Mapping[str, Any]) -> list[str]:
    rows = [[name, *_cells(measures, TABLE_7)] for name, measures in _systems(document)]
    published = [[row["name"], *(f"{row[name]:5.1f}" for name in TABLE_7)] for row in document["published"]]
    table = _aligned([["agreement with the labels", *(_HEADS[name] for name in TABLE_7)], *rows, *published])
    at = 2 + len(rows)
    return [*table[:at], "as published, on all 542 human pairs of BERDS and not on these:", *table[at:]]


def _second_table(document: Mapping[str, Any]) -> list[str]:
    names = MEASURES[len(TABLE_7) :]
    rows = [[name, *_cells(measures, names)] for name, measures in _systems(document)]
    return _aligned([["", *(_HEADS[name] for name in names)], *rows])


def _systems(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    judges = [(each["name"], each["measures"]) for each in document["judges"]]
    random, *others = document["baselines"].items()
    return [*judges, (f"{random[0]} (expected)", random[1]), *others]


def _unparsed(document: Mapping[str, Any]) -> list[str]:
    lost = [each for each in document["judges"] if each["n_unparsed"]]
    if not lost:
        return ["unparsed answers: none"]
    rows = [
        ["unparsed answers, never taken as No", "pairs", "labelled Yes", "accuracy %, all wrong", "F1 %, all wrong"]
    ]
    for each in lost:
        worst = _cells(each["measures"], ("accuracy_worst", "f1_worst"))
        rows.append([each["name"], str(each["n_unparsed"]), str(each["n_unparsed_labelled_yes"]), *worst])
    return ["", *_aligned(rows), "The tables above are over the parsed answers; no reading of the others gives less."]


def _difference(each: Mapping[str, Any]) -> list[str]:
    n, other = each["pairs"], each["other_labels"]
    same, kappa = _cell("accuracy", each["same_label"]).split(maxsplit=1), _cell("kappa", each["kappa_of_both"]).split()
    rows = [[f"on the {n} pairs that both answered", each["first"], each["second"], "difference"]]
    for name in MEASURES:
        both = [_cell(name, each[key][name]) for key in ("first_measures", "second_measures")]
        rows.append([_HEADS[name], *both, _cell(name, each["measures"][name], "+")])
    lines = [
        *_aligned(rows),
        f"labels that differ: {other} of {n}; same label {' % '.join(same).strip()}; kappa of both {' '.join(kappa)}",
    ]
    if each["answered_by_one"]:
        lines.append(f"answered by one of the two only, and in none of these numbers: {each['answered_by_one']} pairs")
    return lines


def _probes(each: Mapping[str, Any]) -> list[str]:
    head = [f"probes of {each['judge']}", "pairs", "unparsed", "Yes before %", "Yes after %", "flipped %"]
    rows = [[*head, "Yes to No %", "No to Yes %"]]
    notes = {}
    for change in each["changes"]:
        counts = change["counts"]
        lost = f"{counts['yes_to_no']}/{counts['yes_before']}"
        won = f"{counts['no_to_yes']}/{change['pairs'] - counts['yes_before']}"
        shares = [_cell("flips", change[name]) for name in ("yes_before", "yes_after", "flipped")]
        ends = [f"{lost} {_cell('flips', change['yes_to_no'])}", f"{won} {_cell('flips', change['no_to_yes'])}"]
        rows.append([change["name"], str(change["pairs"]), str(change["n_unparsed"]), *shares, *ends])
        notes[change["name"].partition(":")[0]] = f"{change['scope']}; ideal: {change['ideal']}"
    lines = [*_aligned(rows), *(f"{name}: {note}" for name, note in notes.items())]
    lines += _parts(each["lengths"], "length of the passage", "the passages are all of one length", "no difference")
    return lines + _parts(
        each["stances"], "stance of the perspective", "no two stances are known", "no difference in recall"
    )


def _parts(parts: Sequence[Mapping[str, Any]], head: str, absent: str, ideal: str) -> list[str]:
    if not parts:
        return ["", f"{head}: not compared, {absent}"]
    names = (*TABLE_7, "precision", "recall")
    rows = [[head, "pairs", "labelled Yes", "unparsed", *(_HEADS[name] for name in names)]]
    for row in parts:
        counts = [str(row[key]) if key in row else "" for key in ("pairs", "labelled_yes", "n_unparsed")]
        rows.append([row["name"], *counts, *_cells(row["measures"], names, "" if "pairs" in row else "+")])
    return ["", *_aligned(rows), f"{head}: ideal: {ideal}"]


def _notes(document: Mapping[str, Any]) -> list[str]:
    notes = [
        f"In brackets: 95 % intervals by {document['resamples']:,} bootstrap resamples of the questions, seed "
        f"{document['seed']}; Yes: a probability of {document['threshold']} or above; NaN: undefined. An interval "
        "without width says that all questions agreed, not that others will."
    ]
    if document["questions"] < FEW:
        notes.append(f"{document['questions']} questions are few: such intervals are somewhat too narrow.")
    if document["weighted"]:
        notes.append("Pairs count by 1 / inclusion probability: they are a sample. Probes count each once.")
    undefined = {
        f"{name} {_HEADS[measure].removesuffix(' %')}: {found['undefined_resamples']}"
        for name, measures in _systems(document)
        for measure, found in measures.items()
        if measure in MEASURES and found["value"] is not None and found["undefined_resamples"]
    }
    if undefined:
        notes.append(f"Resamples where a measure is undefined, left out: {'; '.join(sorted(undefined))}.")
    return notes


def _cells(measures: Mapping[str, Any], names: Sequence[str], sign: str = "") -> list[str]:
    return [_cell(name, measures[name], sign) for name in names]


def _cell(name: str, found: Mapping[str, float | None], sign: str = "") -> str:
    form, factor, width = (f"{sign}.3f", 1, 16) if name in _PLAIN else (f"{sign}.1f", 100, 14)
    value, low, high = (
        "NaN" if each is None else format(round(factor * each, 9) + 0.0, form)  # no -0.0
        for each in (found["value"], found["low"], found["high"])
    )
    interval = f"[{low}, {high}]" if found["low"] is not None else ""
    return f"{value:>5} {interval:<{width + 2 * len(sign)}}"  # values stand below values


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows with a line below the first; counts to the right, names and intervals to the left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    counts = [all(cell.strip().isdecimal() or not cell for cell in column[1:]) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if count else cell.ljust(width)
            for cell, width, count in zip(row, widths, counts, strict=True)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
