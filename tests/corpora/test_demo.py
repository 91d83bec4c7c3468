"""The demo collection keeps its promises: ids, lengths, coverage, registers, no near-duplicates."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import pytest

import corpora
from corpora.files import read_passages, read_qrels, read_task_folder

FOLDER = Path(corpora.__file__).with_name("demo")
KINDS = {"supports", "background", "trap", "near"}
REGISTERS = {"news", "forum", "encyclopaedia", "essay"}


@pytest.fixture(scope="module")
def questions():
    return read_task_folder(FOLDER).questions


@pytest.fixture(scope="module")
def passages():
    return list(read_passages(FOLDER / "corpus.jsonl"))


@pytest.fixture(scope="module")
def annotation():
    return [json.loads(line) for line in (FOLDER / "annotation.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def supports():
    """passage_id -> the perspectives that it supports."""
    found = defaultdict(set)
    for subtopics in read_qrels(FOLDER / "qrels.txt").values():
        for perspective_id, judged in subtopics.items():
            for passage_id, relevance in judged.items():
                found[passage_id] |= {perspective_id} if relevance > 0 else set()
    return found


def test_questions_in_three_manners(questions):
    assert Counter(question.group for question in questions) == {"debate": 8, "open": 8, "survey": 8}
    assert {question.split for question in questions} == {"dev", "test"}
    assert len({question.text for question in questions}) == 24
    for question in questions:
        stances = [perspective.stance for perspective in question.perspectives]
        if question.group == "open":
            assert 3 <= len(stances) <= 5
            assert set(stances) == {None}
        else:
            assert stances == ["supporting", "opposing"]


def test_passages_have_ids_lengths_and_titles(passages):
    assert len(passages) >= 360
    assert len({passage.passage_id for passage in passages}) == len(passages)
    assert not [p.passage_id for p in passages if not 60 <= len(p.text.split()) <= 120]
    assert not [p.passage_id for p in passages if not p.title or not p.text.isprintable()]
    assert len({passage.title for passage in passages}) == len(passages)


def test_every_passage_is_annotated_and_every_register_is_there(passages, annotation):
    assert [row["passage_id"] for row in annotation] == [passage.passage_id for passage in passages]
    registers = Counter(row["register"] for row in annotation)
    assert set(registers) == REGISTERS
    assert min(registers.values()) >= len(passages) / 5
    assert {row["kind"] for row in annotation} == KINDS


def test_labels_cover_every_perspective_and_most_supports_are_of_one(questions, annotation, supports):
    count = Counter(perspective for ids in supports.values() for perspective in ids)
    for question in questions:
        for perspective in question.perspectives:
            assert count[perspective.perspective_id] >= 2, perspective
    sizes = Counter(len(supports[row["passage_id"]]) for row in annotation)
    assert set(sizes) == {0, 1, 2}
    assert sizes[1] > len(annotation) / 3
    assert sizes[2] > 20
    assert sizes[0] >= len(annotation) / 3
    for row in annotation:
        assert (row["kind"] == "supports") == bool(supports[row["passage_id"]]), row


def test_a_passage_is_judged_for_all_perspectives_of_its_own_question_and_for_no_other(questions, annotation):
    qrels = read_qrels(FOLDER / "qrels.txt")
    written_for = defaultdict(set)
    for row in annotation:
        written_for[row["question_id"]].add(row["passage_id"])
    for question in questions:
        assert set(qrels[question.question_id]) == {p.perspective_id for p in question.perspectives}
        for judged in qrels[question.question_id].values():
            assert set(judged) == written_for[question.question_id]


def test_no_passage_repeats_another(passages):
    shingles = {}
    for passage in passages:
        words = passage.text.lower().split()
        shingles[passage.passage_id] = {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
    by_shingle = defaultdict(list)
    for passage_id, each in shingles.items():
        for shingle in each:
            by_shingle[shingle].append(passage_id)
    shared = Counter(pair for ids in by_shingle.values() for pair in combinations(ids, 2))
    alike = {
        pair: n / len(shingles[pair[0]] | shingles[pair[1]])
        for pair, n in shared.items()
        if n / len(shingles[pair[0]] | shingles[pair[1]]) > 0.1
    }
    assert not alike
