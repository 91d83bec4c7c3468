"""Questions of a run that people labelled whole: a probability sample as ``python -m benchmarks.sample`` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corpora.types import Question, Run
from evaluator.metric import Labels
from evaluator.pairs import LabelledPair


@dataclass(frozen=True)
class Sample:
    """Questions that people labelled whole.

    Attributes:
        labels: question_id -> int8 (k, m), down to ``depth``.
        probabilities: question_id -> with which it was drawn.
        depth: Ranks that are labelled; fewer where fewer were retrieved.
    """

    labels: Mapping[str, Labels]
    probabilities: Mapping[str, float]
    depth: int


def is_sample(pairs: Sequence[LabelledPair], run: Run, questions: Sequence[Question]) -> bool:
    """Whether these pairs are whole questions of this run: every passage, down to one rank, with every perspective.

    Pairs without ranks, of another run, or drawn one by one are not; whether they have labels does not matter.
    """
    by_id = {question.question_id: question for question in questions}
    depth = max((each.rank for each in pairs), default=0)
    cells: dict[str, set[tuple[int, str]]] = {}
    chances: dict[str, set[float]] = {}
    for each in pairs:
        name, rank = each.pair.question.question_id, each.rank
        ranking = run.get(name, ()) if name in by_id else ()
        if not 1 <= rank <= len(ranking) or ranking[rank - 1].passage_id != each.pair.passage.passage_id:
            return False
        cells.setdefault(name, set()).add((rank, each.pair.perspective.perspective_id))
        chances.setdefault(name, set()).add(each.inclusion_probability)
    whole = (
        {(rank + 1, p.perspective_id) for rank in range(min(depth, len(run[name]))) for p in by_id[name].perspectives}
        == found
        for name, found in cells.items()
    )
    return bool(cells) and all(whole) and all(len(found) == 1 for found in chances.values())


def whole_questions(pairs: Sequence[LabelledPair], run: Run, questions: Sequence[Question]) -> Sample:
    """The drawn questions of a run from their labelled pairs.

    Args:
        pairs: With ids, ranks and inclusion probabilities, as the sampling command writes them.
        run: The run that they were drawn from.
        questions: All of the run, with their perspectives.

    Raises:
        ValueError: A pair has no label or does not belong to this run, a drawn question lacks pairs, or has several
            inclusion probabilities.
    """
    by_id = {question.question_id: question for question in questions}
    depth = max((each.rank for each in pairs), default=0)
    labels: dict[str, Labels] = {}
    chances: dict[str, float] = {}
    for each in pairs:
        name, passage_id = each.pair.question.question_id, each.pair.passage.passage_id
        perspective_id = each.pair.perspective.perspective_id
        where = f"pair (question {name}, passage {passage_id}, perspective {perspective_id})"
        question, ranking = by_id.get(name), run.get(name, ())
        columns = [] if question is None else [p.perspective_id for p in question.perspectives]
        if perspective_id not in columns or not 1 <= each.rank <= len(ranking):
            raise ValueError(f"{where} is not of this run: give the pairs that were drawn from it")
        if ranking[each.rank - 1].passage_id != passage_id:
            raise ValueError(f"{where} is not at rank {each.rank} of this run: give the pairs that were drawn from it")
        if each.label is None:
            raise ValueError(f"{where} has no label: people must label every pair of a drawn question")
        if chances.setdefault(name, each.inclusion_probability) != each.inclusion_probability:
            raise ValueError(f"question {name} was drawn with several probabilities: draw with --unit question")
        matrix = labels.setdefault(name, np.full((min(depth, len(ranking)), len(columns)), -1, np.int8))
        matrix[each.rank - 1, columns.index(perspective_id)] = each.label
    for name, matrix in labels.items():
        if missing := int(np.count_nonzero(matrix == -1)):
            raise ValueError(
                f"question {name}: {missing} of {matrix.size} pairs of its top {depth} are not in the sample: metrics "
                "need whole questions, draw with --unit question"
            )
    return Sample(labels, chances, depth)
