"""What reranking will take, told beforehand: ``--dry-run`` asks no model."""

from __future__ import annotations

from benchmarks.experiment import Experiment
from benchmarks.pipeline import pool_maker, reranked, retrieved
from benchmarks.plan import Step, made, rerank_key
from corpora.types import Run


def rerank_steps(experiment: Experiment) -> list[Step]:
    """One step for each reranker; with what it takes, where its pools are known and it can tell (``estimate``)."""
    steps: list[Step] = []
    run: Run | None = retrieved(experiment)
    for number, (name, reranker) in enumerate(zip(experiment.config.reranker, experiment.rerankers, strict=True)):
        done = run is not None and made("rerank", rerank_key(experiment, number, run))
        what, tell = f"reranker {name}", getattr(reranker, "estimate", None)
        if run is not None and not done and callable(tell):
            pool = pool_maker(experiment, reranker, run)
            what += f": {tell([pool(question) for question in experiment.searched])}"
        steps.append(Step("rerank", done, what))
        run = reranked(experiment, number, run) if run is not None and done else None
    return steps


def known_run(experiment: Experiment) -> Run | None:
    """The final run where it can be read; None where a reranker would have to work for it."""
    run = retrieved(experiment)
    for number in range(len(experiment.rerankers)):
        if not made("rerank", rerank_key(experiment, number, run)):
            return None
        run = reranked(experiment, number, run)
    return {question.question_id: run.get(question.question_id, ()) for question in experiment.scored}
