"""Task folders and what they are made of: written and read back, by hand and on the shared public data."""

import gzip
import json
import os
from collections import Counter

import pytest

from corpora import files
from corpora.types import Passage, Perspective, Question
from tests.conftest import DATA

PERSPECTRUM = DATA / "perspectrum"

QUESTIONS = [
    Question(
        "q1",
        "Is tea \u2028 good?\n",
        (Perspective("a", "Yes", "supporting"), Perspective("b", "Nein, ä", "opposing")),
        "drinks",
        "dev",
    ),
    Question("q2", "Why?", (Perspective("a", "Because"),), "other"),
    Question("q3", "None?", (), "other"),
]
QRELS = {"q1": {"a": {"d1": 1, "d2": 0}, "b": {"d2": 3}}, "q2": {"a": {"d1": -2}}}
PASSAGES = [Passage("d1", "body", "title", "https://example.org"), Passage("d2", ""), Passage("d3", "\x85 é\n")]


def test_task_folder_round_trip(tmp_path):
    folder = tmp_path / "tea"
    files.write_task_folder(folder, QUESTIONS, QRELS, PASSAGES, name="Tea", group="kind", macro=True)
    task = files.read_task_folder(folder)
    assert task == files.TaskFiles("Tea", tuple(QUESTIONS), QRELS, folder / "corpus.jsonl", True, "kind")
    assert list(files.read_passages(task.corpus_path)) == PASSAGES
    assert json.loads((folder / "questions.jsonl").read_text().split("\n")[0]) == {
        "question_id": "q1",
        "question": "Is tea \u2028 good?\n",
        "split": "dev",
        "kind": "drinks",
        "perspectives": [
            {"perspective_id": "a", "text": "Yes", "stance": "supporting"},
            {"perspective_id": "b", "text": "Nein, ä", "stance": "opposing"},
        ],
    }


def test_task_folder_of_questions_alone(tmp_path):
    files.write_task_folder(tmp_path / "bare", QUESTIONS[1:2])
    assert sorted(os.listdir(tmp_path / "bare")) == ["questions.jsonl"]
    task = files.read_task_folder(tmp_path / "bare")
    assert (task.name, task.qrels, task.corpus_path, task.macro, task.group) == ("bare", None, None, False, None)
    assert task.questions == (Question("q2", "Why?", (Perspective("a", "Because"),), "all"),)


def test_gzip_by_suffix_and_by_content(tmp_path):
    files.write_questions(tmp_path / "questions.jsonl.gz", QUESTIONS, "kind")
    files.write_qrels(tmp_path / "qrels.txt.gz", QRELS)
    assert (tmp_path / "qrels.txt.gz").read_bytes()[:2] == b"\x1f\x8b"
    task = files.read_task_folder(tmp_path)
    assert task.qrels == QRELS
    assert len(task.questions) == 3
    (tmp_path / "named-wrongly.txt").write_bytes((tmp_path / "qrels.txt.gz").read_bytes())
    assert files.read_qrels(tmp_path / "named-wrongly.txt") == QRELS


def test_byte_order_mark_windows_ends_and_comments(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_bytes(b"\xef\xbb\xbfq1 0 d1 1\r\n# a comment\r\n\r\nq1\t0  d\xc2\xa02 0\r\nq1 0 d1 1\r\n")
    assert files.read_qrels(path) == {"q1": {"0": {"d1": 1, "d\xa02": 0}}}


def test_url_in_the_metadata(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"_id": "d", "text": "t", "metadata": {"url": "u", "n": 1}}\n{"_id": "e", "text": "", "url": "v"}')
    assert list(files.read_passages(path)) == [Passage("d", "t", "", "u"), Passage("e", "", "", "v")]


def test_passages_are_read_one_by_one(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"_id": "d", "text": "t"}\nbroken\n')
    passages = files.read_passages(path)
    assert next(passages) == Passage("d", "t")
    with pytest.raises(files.InputError, match=r"corpus\.jsonl:2"):
        next(passages)


def test_beir_round_trip(tmp_path):
    questions = [
        Question("q1", "tea", (Perspective("0", "tea"),), split="test"),
        Question("q2", "milk", (Perspective("0", "milk"),), split="dev"),
    ]
    qrels = {"q1": {"0": {"d1": 2, "d2": 0}}, "q2": {"0": {"d1": 1}}}
    files.write_beir(tmp_path / "b", questions, qrels, PASSAGES)
    task = files.read_task_folder(tmp_path / "b")
    assert task == files.TaskFiles("b", tuple(questions), qrels, tmp_path / "b" / "corpus.jsonl")
    assert files.read_beir(tmp_path / "b", "dev") == ([questions[1]], {"q2": {"0": {"d1": 1}}})
    assert (tmp_path / "b" / "qrels" / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n"


def test_beir_keeps_the_highest_relevance_of_a_passage(tmp_path):
    files.write_beir(tmp_path, QUESTIONS, {"q1": QRELS["q1"]})
    questions, qrels = files.read_beir(tmp_path)
    assert qrels == {"q1": {"0": {"d1": 1, "d2": 3}}}  # d2: 0 for a, 3 for b
    assert [question.question_id for question in questions] == ["q1"]  # the only one with labels


def test_beir_without_labels(tmp_path):
    files.write_beir(tmp_path, QUESTIONS)
    questions, qrels = files.read_beir(tmp_path)
    assert qrels is None
    assert len(questions) == 3


def test_a_broken_off_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    files.write_passages(path, PASSAGES)
    before = path.read_bytes()

    def breaking():
        yield PASSAGES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_passages(path, breaking())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["corpus.jsonl"]


def test_writers_refuse_what_readers_would_misread(tmp_path):
    with pytest.raises(ValueError, match="'d 1'"):
        files.write_qrels(tmp_path / "q", {"q1": {"a": {"d 1": 1}}})
    with pytest.raises(ValueError, match="perspectives"):
        files.write_questions(tmp_path / "q", QUESTIONS, "perspectives")
    with pytest.raises(ValueError, match="'q9'"):
        files.write_beir(tmp_path, QUESTIONS, {"q9": {"0": {"d": 1}}})


def test_passage_hash_is_of_title_and_text_without_the_ends():
    same = {files.passage_hash(Passage(i, text, "t")) for i, text in (("1", "a b"), ("2", " a b\n"))}
    assert len(same) == 1
    others = [Passage("", "a  b", "t"), Passage("", "a b", "T"), Passage("", "b", "t\0a"), Passage("", "a b", "")]
    assert len(same | {files.passage_hash(passage) for passage in others}) == 5


@pytest.mark.data
@pytest.mark.skipif(not PERSPECTRUM.is_dir(), reason="needs the public data (see CONTRIBUTING.md)")
def test_perspectrum(tmp_path):
    task = files.read_task_folder(PERSPECTRUM)
    assert task.name == "perspectrum"
    # the numbers of shared/data/README.md
    assert Counter(question.split for question in task.questions) == {"train": 166, "dev": 56}
    assert sum(len(question.perspectives) for question in task.questions) == 1445
    assert sum(len(labels) for of_question in task.qrels.values() for labels in of_question.values()) == 2692
    passages = list(files.read_passages(task.corpus_path))
    assert len(passages) == 3964
    by_source = files.read_questions(PERSPECTRUM / "questions.jsonl", "source")
    assert Counter(question.group for question in by_source) == {"debatewise": 186, "procon": 36}
    files.write_task_folder(tmp_path / "perspectrum", task.questions, task.qrels, passages)
    again = files.read_task_folder(tmp_path / "perspectrum")
    assert (again.questions, again.qrels) == (task.questions, task.qrels)
    assert list(files.read_passages(again.corpus_path)) == passages
    with gzip.open(tmp_path / "c.gz", "wt") as file:
        file.write((PERSPECTRUM / "corpus.jsonl").read_text())
    assert list(files.read_passages(tmp_path / "c.gz")) == passages
