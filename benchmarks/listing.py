"""What ``--list`` prints: every plug-in, with the reason where one is broken, and every metric."""

from __future__ import annotations

from benchmarks.tasks import TASKS
from corpora import CORPORA
from evaluator.judges import JUDGES
from evaluator.metrics import METRICS
from rerankers import RERANKERS
from retrievers import RETRIEVERS


def listing() -> str:
    """All plug-ins by kind, and the metrics, one per line."""
    lines = []
    for registry in (TASKS, CORPORA, RETRIEVERS, RERANKERS, JUDGES):
        lines.append(f"{registry.kind}:")
        for each in registry.listing():
            lines.append(
                f"  {each.name:24} {each.source}" + ("" if each.problem is None else f"  BROKEN: {each.problem}")
            )
        if registry is JUDGES:
            lines.append("  gold                     the qrels of the task")
    lines.append("metrics:")
    lines += [f"  {title:24} {(metric.__doc__ or '').strip().splitlines()[0]}" for title, metric in METRICS.items()]
    return "\n".join(lines)
