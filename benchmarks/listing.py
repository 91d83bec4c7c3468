"""What ``--list`` prints: every plug-in, with the reason where one is broken, and every metric."""

from __future__ import annotations

from benchmarks.tasks import TASKS
from corpora import CORPORA
from evaluator.judges import JUDGES
from evaluator.metrics import METRICS
from lm import ENCODERS
from rerankers import RERANKERS
from retrievers import EXPANDERS, RETRIEVERS


def listing() -> str:
    """All plug-ins by kind, and the metrics, one per line."""
    lines = []
    for registry in (TASKS, CORPORA, EXPANDERS, RETRIEVERS, RERANKERS, JUDGES):
        lines.append(f"{registry.kind}:")
        for each in registry.listing():
            told = f"BROKEN: {each.problem}" if each.problem else each.arguments
            lines.append(f"  {each.name:24} {each.source}  {told}".rstrip())
        if registry is RETRIEVERS:  # named only: loading all encoders takes seconds
            lines.append(f"  (encoder= of dense: {', '.join(ENCODERS.names())}, a model id or a folder)")
        if registry is JUDGES:
            lines.append("  gold                     the qrels of the task")
    lines.append("metrics:")
    for title, metric in METRICS.items():
        shown = ",".join(f"{name}={value}" for name, value in metric.parameters().items())
        form = (
            title + (f"({shown})" if shown else "") + {"required": "@k", "optional": "[@k]", "none": ""}[metric.cutoff]
        )
        lines.append(f"  {form:32} {(metric.__doc__ or '').strip().splitlines()[0]}")
    return "\n".join(lines)
