"""What a finished run prints: a table that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.experiment import GOLD

RANKS = ("CoverageDepth",)
"""Metrics whose values are ranks; all others are shares, printed in percent as the BERDS paper does."""


def report(scores: Mapping[str, Any], metrics: Sequence[str], folder: str) -> str:
    """The table of scores.json: one line per metric, the headline mean with its 95 % interval, groups beside it.

    Args:
        scores: scores.json.
        metrics: The metrics to show, in this order.
        folder: Where the result lies.
    """
    config, questions = scores["config"], scores["questions"]
    groups = list(scores.get("groups", {}))
    headline = scores["macro"] if config_macro(scores) else scores["scores"]
    header = ["metric", "macro" if config_macro(scores) else "mean", "95% interval", *groups]
    header += ["detectable", "n", "undefined", "unjudged"]
    rows = [header]
    for name in metrics:
        entry = headline[name]
        interval = f"[{shown(name, entry['low'])}, {shown(name, entry['high'])}]"
        row = [name, shown(name, entry["mean"]), interval]
        row += [shown(name, scores["groups"][group][name]["mean"]) for group in groups]
        row += [shown(name, entry["detectable"]), *(str(entry[key]) for key in ("n", "n_undefined", "n_unjudged"))]
        rows.append(row)
    lines = [_title(config, questions), *aligned(rows), *_notes(scores)]
    return "\n".join([*lines, f"result: {folder}"])


def config_macro(scores: Mapping[str, Any]) -> bool:
    """Whether the headline is the macro mean over groups."""
    return bool(scores["config"]["task"]["macro"])


def _title(config: Mapping[str, Any], questions: Mapping[str, Any]) -> str:
    parts = [f"task {config['task']['name']} ({config['task']['split']}, {questions['n']} questions)"]
    if config["corpus"] is not None:
        parts.append(f"corpus {config['corpus']['name']}")
    parts.append(f"retriever {config['retriever']['name']}")
    if config.get("expander"):
        parts.insert(-1, f"expander {config['expander']['name']} (for {config['expander']['for']})")
    rerankers = config["reranker"] if isinstance(config["reranker"], list) else [config["reranker"] or {}]
    for reranker in filter(None, rerankers):
        parts.append(f"reranker {reranker['name']}{_oracle(config) if reranker.get('oracle') else ''}")
    if tuned := config.get("tuned"):
        seen = f"; {tuned['overlap'].upper()} OF THESE QUESTIONS" if tuned["overlap"] != "none" else ""
        seen += f"; {tuned['related']} of these share texts or supporting passages" if tuned.get("related") else ""
        parts.append(f"tuned on {tuned['task']} {tuned['split']}{seen}")
    if config["query"] != "question":
        parts.append(f"query {config['query']}")
    return ", ".join([*parts, f"labels {config['judge']['name']}"])


def _oracle(config: Mapping[str, Any]) -> str:
    """What an oracle knows; by a judge's labels, its order is no bound for that of others."""
    judge = config["judge"]["name"]
    if judge == GOLD:
        return " (ORACLE: it sees the labels)"
    return f" (ORACLE: it sees the gold labels, and is scored by {judge}: no bound)"


def _notes(scores: Mapping[str, Any]) -> list[str]:
    notes = [
        "Shares in percent. Interval: bootstrap over questions. detectable: the smallest difference to another system "
        "that a test on as many questions finds (80 % power)."
    ]
    labels, questions = scores["labels"], scores["questions"]
    if labels["unjudged"] or labels["unparsed"]:
        notes.append(
            f"{labels['unjudged']} of {labels['pairs']} labels are unknown and {labels['unparsed']} unparsed; "
            "they count as unsupporting ('unjudged': passages that a metric looked at; 'upper' in scores.json: the "
            "mean if all were supports)."
        )
    if questions["without_passages"]:
        notes.append(f"{len(questions['without_passages'])} questions have no passage; they count with empty rankings.")
    if missing := questions["not_applicable"]:
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        notes.append(f"{len(missing)} questions lack a stance and are not applicable: {shown}")
    if same := scores.get("same_family"):
        notes.append(
            f"SAME MODEL FAMILY: {same['family']} wrote the expansions, and also the gold perspectives of "
            f"{', '.join(same['groups'])} ({same['questions']} of {questions['n']} questions): what the expander gains "
            "there may be overstated."
        )
    return notes


def shown(metric: str, value: float | None) -> str:
    """A value of this metric as tables print it; ``-`` where it is undefined."""
    if value is None:  # undefined
        return "-"
    return f"{value:.2f}" if metric.startswith(RANKS) else f"{100 * value:.2f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right, a rule below the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
