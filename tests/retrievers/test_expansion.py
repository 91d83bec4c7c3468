"""Expansions from files: forms, matching by id, what is missing is counted; the authors' own files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from corpora.fingerprint import fingerprint
from corpora.types import Query
from retrievers.expansion import File, expanded
from tests.conftest import DATA

FIRST, SECOND = Query("set-7", "set-7", "Is it so?"), Query("set-8", "set-8", "Is it so?")


def write(path: Path, *records: dict[str, object]) -> tuple[Path, ...]:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return (path,)


def test_forms() -> None:
    texts = [query.text for query in expanded(FIRST, ["Yes.", "No."], "both", False)]
    assert texts == ["Is it so? Yes.", "Is it so? No."]
    found = expanded(FIRST, ["Yes.", " ", "No.", "Yes. "], "perspective", True)
    assert [(each.query_id, each.question_id, each.text, each.origin) for each in found] == [
        ("set-7", "set-7", "Is it so?", "question"),
        ("set-7::0", "set-7", "Yes.", "expansion:0"),
        ("set-7::1", "set-7", "No.", "expansion:1"),
    ]
    assert expanded(FIRST, [], "both", False) == (FIRST,)


def test_questions_are_told_apart_by_id(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        {"org_id": "8", "org_q": "Is it so?", "text": "eight", "perspective": "Name"},
        {"org_id": "7", "org_q": "Is it so? ", "text": "seven"},
        {"org_id": 8, "org_q": "Is it so?", "text": "more"},
        {"org_id": "9", "org_q": "Another question", "text": "of another split"},
        {"question_id": "set-7", "text": "by our id"},
    )
    found = File(path, form="perspective").expand([FIRST, SECOND])
    assert [[query.text for query in each] for each in found] == [["seven", "by our id"], ["eight", "more"]]


def test_a_text_of_two_questions_without_an_id_of_theirs_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"org_id": "1", "org_q": "Is it so?", "text": "which?"})
    with pytest.raises(ValueError, match=r"a\.jsonl:1: found org_id '1' and a text that 2 questions have"):
        File(path).expand([FIRST, SECOND])
    assert [query.text for query in File(path).expand([FIRST])[0]] == ["Is it so? which?"]


def test_what_is_missing_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"question_id": "set-7", "text": "one"})
    with pytest.warns(UserWarning, match=r"expander file: nothing for 1 of 2 queries \(such as 'set-8'\)"):
        found = File(path, question=True).expand([FIRST, SECOND])
    assert [len(each) for each in found] == [2, 1]
    assert found[1] == (SECOND,)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question_id": "set-7"}, r"a\.jsonl:1: found no field 'text'"),
        ({"question_id": "set-7", "text": " "}, "a text that is not empty"),
        ({"text": "x"}, "no field 'org_id'"),
        ({"org_id": "7", "text": "x"}, "no field 'org_q'"),
        ({"question_id": "other", "text": "x"}, "has no line for any of 1 questions of this run"),
    ],
)
def test_broken_files(tmp_path: Path, record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        File(write(tmp_path / "a.jsonl", record)).expand([FIRST])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such file"):
        File((tmp_path / "none.jsonl",)).expand([FIRST])


def test_files_count_by_content(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    first = write(tmp_path / "a.jsonl", {"question_id": "set-7", "text": "one"})
    same = write(tmp_path / "x" / "b.jsonl", {"question_id": "set-7", "text": "one"})
    other = write(tmp_path / "c.jsonl", {"question_id": "set-7", "text": "two"})
    assert fingerprint(File(first)) == fingerprint(File(same)) != fingerprint(File(other))
    assert fingerprint(File(first)) != fingerprint(File(first, form="perspective"))


@pytest.mark.data
@pytest.mark.parametrize(
    ("group", "name", "lines", "questions"),
    [
        ("arguana", "arguana_generated_query_exp.dev.jsonl", 1503, 250),
        ("kialo", "kialo_query_exp.dev.jsonl", 1573, 258),
        ("opinionqa", "opinionqa_query_exp.dev.jsonl", 1788, 294),
    ],
)
def test_the_authors_files(group: str, name: str, lines: int, questions: int) -> None:
    path = DATA / "berds" / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = {f"{group}-{record['org_id']}": record["org_q"] for record in records}
    queries = [Query(question_id, question_id, text) for question_id, text in texts.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = File((path,)).expand(queries)
    assert (len(found), len(records)) == (questions, lines)
    expected = {(f"{group}-{r['org_id']}", " ".join(f"{r['org_q'].strip()} {r['text']}".split())) for r in records}
    made = {(query.question_id, " ".join(query.text.split())) for each in found for query in each}
    assert made == expected
