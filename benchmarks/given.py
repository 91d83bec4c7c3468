"""A run file that somebody brings: its passages matched to the ids that the gold labels use."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from corpora.base import Corpus
from corpora.files import RunFile, passage_hash, read_run
from corpora.types import Hit, Qrels, Question, Ranking

SAMPLE = 200
"""So many passages of a run are compared with the corpus's own texts."""
GOLD_SAMPLE = 2000
"""So many relevant passages of the qrels are looked up in the corpus."""


def given_run(path: Path, questions: Sequence[Question] | None, corpus: Corpus | None, qrels: Qrels | None) -> RunFile:
    """The run of a file, ready to be labelled.

    Gold labels belong to ids: where the file carries none, its passages are matched to the corpus by title and text.

    Args:
        path: TREC, BERDS JSONL or DPR JSON.
        questions: All questions of the task; None where they come from this file.
        corpus: Where ids are looked up; None where it is not at hand.
        qrels: The gold labels that the run will be scored with; None where a judge reads the texts.

    Raises:
        ValueError: The file cannot be read; or gold labels can say nothing about it: not one of its passages is known
            to the qrels or to the corpus, or the corpus has other texts by these ids.
    """
    file = read_run(path, questions)
    if qrels is None:
        return file
    judged = {passage_id for subtopics in qrels.values() for passages in subtopics.values() for passage_id in passages}
    if not file.has_ids and corpus is not None:
        file = _matched(file, corpus, qrels)
    if corpus is not None:
        _check_texts(path, file, corpus)
    ids = {hit.passage_id for ranking in file.run.values() for hit in ranking}
    if ids and corpus is not None and ids.isdisjoint(judged):
        check_gold(qrels, file.run.keys(), corpus)
    if ids and ids.isdisjoint(judged) and not _any_known(sorted(ids), corpus):
        example = min(ids)
        where = "the qrels" if corpus is None else "the qrels or the corpus"
        raise ValueError(
            f"{path}: none of its {len(ids)} passages (such as {example!r}) is known to {where}: "
            "check that run and task belong together; or remove the ids, so that passages are matched by title and "
            "text; or score the texts with --judge"
        )
    return file


def check_gold(qrels: Qrels, question_ids: Collection[str], corpus: Corpus) -> None:
    """Refuses gold labels that are about another corpus: every score would be 0, and mean nothing.

    Args:
        qrels: The gold labels.
        question_ids: Only the labels of these questions are looked at.
        corpus: What they should be about; a sample of the relevant passages is looked up in it.
    """
    named = sorted(
        {
            passage_id
            for question_id in question_ids
            for passages in qrels.get(question_id, {}).values()
            for passage_id, relevance in passages.items()
            if relevance > 0
        }
    )
    sample = named[:: max(1, len(named) // GOLD_SAMPLE)]
    absent = [passage_id for passage_id in sample if not _any_known([passage_id], corpus)]
    if not absent:
        return
    text = (
        f"{len(absent)} of {len(sample)} relevant passages of the qrels (such as {absent[0]!r}) are not in the corpus"
    )
    if len(absent) == len(sample):
        raise ValueError(f"{text}: the gold labels are about another one")
    warnings.warn(text, stacklevel=2)


def _check_texts(path: Path, file: RunFile, corpus: Corpus) -> None:
    """Refuses a run whose ids mean other passages than the corpus's: small numbers are ids in many collections."""
    seen = other = 0
    example = ""
    for passage_id in sorted(file.passages)[:: max(1, len(file.passages) // SAMPLE)]:
        try:
            ours = corpus.get([passage_id])[0]
        except KeyError:
            continue
        seen += 1
        mine, theirs = set(file.passages[passage_id].text.split()), set(ours.text.split())
        if len(mine & theirs) < min(len(mine), len(theirs)) / 2:  # one of them may be cut
            other, example = other + 1, passage_id
    if other > seen / 10:
        raise ValueError(
            f"{path}: {other} of {seen} passages compared (such as {example!r}) have another text in the corpus: "
            "its ids are those of another collection: remove them, so that passages are matched by title and text"
        )


def _any_known(ids: Sequence[str], corpus: Corpus | None) -> bool:
    if corpus is None:
        return False
    for passage_id in ids:
        try:
            corpus.get([passage_id])
        except KeyError:
            continue
        return True
    return False


def _matched(file: RunFile, corpus: Corpus, qrels: Qrels) -> RunFile:
    """The run with ids of the corpus where a passage of the same title and text is in it."""
    hashed = {passage_id: passage_hash(passage) for passage_id, passage in file.passages.items()}
    wanted = {found for passage_id, found in hashed.items() if passage_id == found}
    candidates: dict[str, list[str]] = {}
    for passage in corpus:
        found = passage_hash(passage)
        if found in wanted:
            candidates.setdefault(found, []).append(passage.passage_id)
    run, dropped = {}, 0
    for question_id, ranking in file.run.items():
        subtopics = qrels.get(question_id, {}).values()
        judged = {passage_id for passages in subtopics for passage_id in passages}
        run[question_id] = _renamed(ranking, candidates, judged)
        dropped += len(ranking) - len(run[question_id])
    lost = len(wanted) - len(candidates)
    if lost or dropped:
        warnings.warn(
            f"{lost} of {len(wanted)} passages without ids have no twin in the corpus and count as unjudged"
            + (f"; {dropped} stood twice in a ranking under one id and were dropped" if dropped else ""),
            stacklevel=2,
        )
    passages = dict(file.passages)
    for old, new in candidates.items():
        passages.update((passage_id, replace(file.passages[old], passage_id=passage_id)) for passage_id in new)
    return replace(file, run=run, passages=passages)


def _renamed(ranking: Ranking, candidates: Mapping[str, Sequence[str]], judged: Collection[str]) -> Ranking:
    hits: dict[str, Hit] = {}
    for hit in ranking:
        twins = candidates.get(hit.passage_id, [hit.passage_id])
        # Of several twins in the corpus, the one that the assessors saw; else the first.
        passage_id = next((twin for twin in twins if twin in judged), twins[0])
        hits.setdefault(passage_id, Hit(passage_id, hit.score))
    return tuple(hits.values())
