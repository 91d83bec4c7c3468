"""Labelled pairs: forms, labels, refusals with their line, and the authors' own file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evaluator.pairs import labels_of, parse_label, read_pairs, write_pairs
from tests.conftest import DATA

HEADER = "question\tid\tdocument\tperspective\tlabel\n"


@pytest.mark.parametrize(
    ("text", "label"),
    [("1", True), ("0", False), ("True", True), ("FALSE", False), ("yes", True), ("No", False), (" 1 ", True)],
)
def test_labels(text: str, label: bool) -> None:
    assert parse_label(text) is label


@pytest.mark.parametrize("value", [1, True, 0, False])
def test_labels_of_json(value: object) -> None:
    assert parse_label(value) is bool(value)


@pytest.mark.parametrize("text", ["2", "maybe", "0.5", "y"])
def test_other_labels_are_refused_with_their_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{HEADER}q\t1\td\tp\t1\nq\t2\td\tp\t{text}\n")
    with pytest.raises(ValueError, match=rf"pairs\.tsv:3: label '{text}': expected 0/1, true/false or yes/no"):
        read_pairs(path)


def test_ids_follow_texts(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f'{HEADER}q\t1\t"a ""quoted"" passage"\tp\t1\nq\t2\tanother\tp\t0\nr\t1\tanother\ts\tno\n')
    pairs = [each.pair for each in read_pairs(path)]
    assert pairs[0].passage.text == 'a "quoted" passage'
    assert pairs[0].question.question_id == pairs[1].question.question_id != pairs[2].question.question_id
    assert pairs[1].passage.passage_id == pairs[2].passage.passage_id != pairs[0].passage.passage_id
    assert pairs[0].perspective.perspective_id == pairs[1].perspective.perspective_id
    assert labels_of(read_pairs(path)) == [True, False, False]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.csv.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text(
        '{"question": "q?", "question_id": "7", "document": "one\\ntwo, \\"three\\"", "title": "t", "perspective": "p",'
        ' "stance": "opposing", "label": true, "inclusion_probability": 0.125, "rank": 3, "group": "g"}\n'
        '{"question": "q?", "document": "d\\u2028e", "perspective": "p", "label": "no"}\n'
    )
    pairs = read_pairs(source)
    assert (pairs[0].inclusion_probability, pairs[0].rank, pairs[0].pair.question.group) == (0.125, 3, "g")
    assert (pairs[0].pair.perspective.stance, pairs[0].pair.passage.title) == ("opposing", "t")
    write_pairs(tmp_path / name, pairs)
    assert read_pairs(tmp_path / name) == pairs


def test_unlabelled_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("question,document,perspective,label\nq,d,p,\n")
    assert read_pairs(path, unlabelled=True)[0].label is None
    with pytest.raises(ValueError, match=r"pairs\.csv:2: label is empty"):
        read_pairs(path)
    with pytest.raises(ValueError, match="1 of 1 pairs have no label"):
        labels_of(read_pairs(path, unlabelled=True))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", HEADER, "ends in .tsv, .csv or .jsonl"),
        ("a.tsv", "", "1: no column question"),
        ("a.tsv", HEADER, "has no pair"),
        ("a.tsv", "question\tdocument\tlabel\n", "1: no column perspective: found question, document, label"),
        ("a.tsv", f"{HEADER}q\t1\t \tp\t1\n", "2: document is empty"),
        ("a.tsv", f"{HEADER}q\t1\td\n", "2: expected 5 columns"),
        ("a.jsonl", '{"question": "q"}\n', "1: expected an object with .* no document"),
        ("a.jsonl", "{\n", "1: no JSON"),
        ("a.csv", "question,document,perspective,label,stance\nq,d,p,1,pro\n", "2: stance 'pro'"),
        ("a.csv", "question,document,perspective,label,inclusion_probability\nq,d,p,1,0\n", "2: inclusion_probability"),
        (
            "a.csv",
            "question,document,perspective,label,rank,inclusion_probability\nq,d,p,1,abc,1\n",
            "2: rank 'abc': expected a whole",
        ),
        (
            "a.csv",
            "question,document,perspective,label,rank,inclusion_probability\nq,d,p,1,-2,1\n",
            "2: rank '-2': expected a whole",
        ),
        ("a.csv", "question,document,perspective,label,rank\nq,d,p,1,3\n", "2: a rank, so this is a sample of a run"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_pairs(path)


def test_no_file_and_no_gzip(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such file"):
        read_pairs(tmp_path / "none.tsv")
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(HEADER.encode())[:-4])
    with pytest.raises(ValueError, match="damaged"):
        read_pairs(path)


@pytest.mark.data
def test_human_pairs_of_berds() -> None:
    path = DATA / "berds" / "pers_det.half.tsv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    pairs = read_pairs(path)
    assert (len(pairs), sum(labels_of(pairs)), len({each.pair.question.question_id for each in pairs})) == (271, 41, 15)
