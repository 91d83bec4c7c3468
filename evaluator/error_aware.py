"""From a judged run and labelled pairs to error-aware scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from corpora.types import Question, Run
from evaluator.correction import DRAWS, Correction, corrected_scores
from evaluator.error_rates import JudgeErrors
from evaluator.judgements import JudgementStore, stream
from evaluator.judges.base import Judge
from evaluator.labels import matrices
from evaluator.metric import Metric
from evaluator.pairs import LabelledPair
from evaluator.question_samples import is_sample, whole_questions
from evaluator.sampling_estimates import MIN_QUESTIONS, sampled_scores
from evaluator.types import Judgement


def error_aware(
    metrics: Sequence[Metric],
    table: pa.Table,
    run: Run,
    questions: Sequence[Question],
    pairs: Sequence[LabelledPair],
    judge: Judge,
    fingerprint: str,
    store: JudgementStore,
    *,
    threshold: float = 0.5,
    macro: bool = False,
    seed: str | int = 0,
    draws: int = DRAWS,
) -> Correction:
    """The error-aware scores of a result.

    Where the pairs are whole questions that were drawn from this run, 30 or more, people's labels are used as such
    (evaluator/sampling_estimates.py). All other pairs tell how often the judge errs (evaluator/correction.py).

    Args:
        metrics: Those of the result; ``Judged`` is left out.
        table: The result's labels by this judge (labels.parquet).
        run: The run that was judged.
        questions: In the order of the table.
        pairs: With labels.
        judge: Asked for its judgements of the labelled pairs, as far as the store lacks them.
        fingerprint: The judge's.
        store: Where judgements are taken from and published to.
        threshold: A passage supports a perspective at this probability or above.
        macro: Whether the mean is the mean of the groups' means.
        seed: Where the random numbers start.
        draws: Of which intervals are made, where a model is used.

    Raises:
        ValueError: In one line, why there are no such scores: too few labelled supports, a judge that hardly tells
            supports from others, a sample with holes.
    """
    labels = matrices(table, run, questions, threshold)
    stances = {question.question_id: tuple(p.stance for p in question.perspectives) for question in questions}
    groups = {question.question_id: question.group for question in questions}
    notes: tuple[str, ...] = ()
    if is_sample(pairs, run, questions):
        sample = whole_questions(pairs, run, questions)
        if len(sample.labels) >= MIN_QUESTIONS:
            return sampled_scores(metrics, labels, sample, stances=stances, groups=groups, macro=macro)
        notes = (
            f"The labelled pairs are {len(sample.labels)} whole questions of this run, which serve as pairs: from "
            f"{MIN_QUESTIONS} on they would give estimates that assume nothing about the judge.",
        )
    answers: list[Judgement] = [Judgement("unparsed", None)] * len(pairs)
    for i, judgement in stream(judge, fingerprint, [each.pair for each in pairs], store):
        answers[i] = judgement
    errors = JudgeErrors.from_pairs(pairs, answers, threshold)
    found = corrected_scores(
        metrics, labels, errors, stances=stances, groups=groups, macro=macro, seed=seed, draws=draws
    )
    return replace(found, notes=(*notes, *found.notes))
