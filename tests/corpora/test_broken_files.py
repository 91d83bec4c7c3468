"""Ten kinds of broken input per reader: one line that names the file, the line and what was found there."""

import gzip
import json

import pytest

from corpora import files
from corpora.beir import read_beir_queries
from corpora.types import Perspective, Question

GOOD_QUESTION = '{"question_id": "q1", "question": "Why?", "perspectives": [{"perspective_id": "a", "text": "t"}]}'
GOOD_PASSAGE = '{"_id": "d1", "title": "", "text": "body"}'
GOOD_RUN = "q1 Q0 d1 1 9.5 tag"
GOOD_BERDS = '{"question": "Why?", "perspectives": ["x", "y"], "ctxs": [{"title": "", "text": "body", "score": 2}]}'
TASK = [Question("t1", "Why?", (Perspective("0", "x"),)), Question("t2", "Twice?"), Question("t3", "Twice?")]


def write(path, content):
    """Writes text, bytes as they are, None not at all, or a folder."""
    if content == "FOLDER":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content, encoding="utf-8")
    return path


def message_of(read, path):
    with pytest.raises(files.InputError) as caught:
        read(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert path.name in message
    assert "found " in message
    assert ", expected " in message
    return message


def assert_names(message, path, line, found):
    assert message.startswith(f"{path}:{line}: found " if line else f"{path}: found "), message
    assert found in message.split(", expected ")[0], message


def record(base, **changes):
    """Returns a good JSON record with fields changed, or removed where the value is ...."""
    fields = {**json.loads(base), **changes}
    return json.dumps({key: value for key, value in fields.items() if value is not ...})


def with_perspective(**changes):
    return record(GOOD_QUESTION, perspectives=[{"perspective_id": "a", "text": "t", **changes}])


QUESTIONS = {
    "missing": (None, None, "nothing there"),
    "folder": ("FOLDER", None, "a folder"),
    "empty": ("", None, "an empty file"),
    "blank": ("\n\n", None, "blank lines only"),
    "not json": (f"{GOOD_QUESTION}\n{{'question_id': 1}}\n", 2, "{'question_id'"),
    "not an object": (f"{GOOD_QUESTION}\n\n[1, 2]\n", 3, "[1, 2]"),
    "not utf-8": (GOOD_QUESTION.encode() + b'\n{"question": "caf\xe9"}', 2, "0xe9"),
    "cut gzip": (gzip.compress(GOOD_QUESTION.encode() * 50)[:-9], 1, "damaged gzip"),
    "no field": (record(GOOD_QUESTION, question=...), 1, "'question'"),
    "id is a number": (record(GOOD_QUESTION, question_id=7), 1, "7"),
    "id with a space": (record(GOOD_QUESTION, question_id="q 1"), 1, "'q 1'"),
    "repeated id": (f"{GOOD_QUESTION}\n{GOOD_QUESTION}", 2, "'q1' again (first at line 1)"),
    "repeated perspective": (
        record(GOOD_QUESTION, perspectives=[{"perspective_id": "a", "text": "t"}] * 2),
        1,
        "'a' twice",
    ),
    "empty text": (record(GOOD_QUESTION, question="  "), 1, "'  '"),
    "empty perspective": (with_perspective(text=""), 1, "perspectives[0].text"),
    "unknown stance": (with_perspective(stance="pro"), 1, "'pro'"),
    "perspectives are no list": (record(GOOD_QUESTION, perspectives="x"), 1, "'x'"),
    "perspective is a text": (record(GOOD_QUESTION, perspectives=["x"]), 1, "perspectives[0] = 'x'"),
    "split is a number": (record(GOOD_QUESTION, split=3), 1, "'split' = 3"),
    "lone surrogate": (record(GOOD_QUESTION, question="a\ud800"), 1, "surrogate"),
}


@pytest.mark.parametrize("content, line, found", QUESTIONS.values(), ids=QUESTIONS)
def test_questions(tmp_path, content, line, found):
    path = write(tmp_path / "questions.jsonl", content)
    assert_names(message_of(files.read_questions, path), path, line, found)


def test_questions_without_the_group_field(tmp_path):
    path = write(tmp_path / "questions.jsonl", GOOD_QUESTION)
    message = message_of(lambda p: files.read_questions(p, "source"), path)
    assert_names(message, path, 1, "no field 'source'")


PASSAGES = {
    "missing": (None, None, "nothing there"),
    "folder": ("FOLDER", None, "a folder"),
    "empty": ("", None, "an empty file"),
    "not json": (f"{GOOD_PASSAGE}\nd2\tbody", 2, "d2\\tbody"),
    "cut json": (f"{GOOD_PASSAGE}\n{GOOD_PASSAGE[:-4]}", 2, "Unterminated"),
    "not an object": ("null", 1, "None"),
    "not utf-8": (b"\xff\xfe{", 1, "0xff"),
    "no id": (record(GOOD_PASSAGE, _id=...), 1, "'_id'"),
    "id is a number": (record(GOOD_PASSAGE, _id=12), 1, "12"),
    "id with a tab": (record(GOOD_PASSAGE, _id="d\t1"), 1, "d\\t1"),
    "empty id": (record(GOOD_PASSAGE, _id=""), 1, "''"),
    "no text": (record(GOOD_PASSAGE, text=...), 1, "'text'"),
    "text is null": (record(GOOD_PASSAGE, text=None), 1, "None"),
    "title is a list": (record(GOOD_PASSAGE, title=["a"]), 1, "['a']"),
    "url is a number": (record(GOOD_PASSAGE, metadata={"url": 5}), 1, "metadata.url"),
}


@pytest.mark.parametrize("content, line, found", PASSAGES.values(), ids=PASSAGES)
def test_passages(tmp_path, content, line, found):
    path = write(tmp_path / "corpus.jsonl", content)
    assert_names(message_of(lambda p: list(files.read_passages(p)), path), path, line, found)


QRELS = {
    "missing": (None, None, "nothing there"),
    "folder": ("FOLDER", None, "a folder"),
    "empty": ("", None, "an empty file"),
    "comments only": ("# nothing\n\n", None, "no line"),
    "three columns": ("q1 a d1 1\nq1 a d2\n", 2, "3 columns in 'q1 a d2'"),
    "a run": (GOOD_RUN, 1, "6 columns"),
    "BEIR's header": ("query-id\tcorpus-id\tscore\n", 1, "query-id"),
    "relevance is a word": ("q1 a d1 yes\n", 1, "'yes'"),
    "relevance is a fraction": ("# c\nq1 a d1 0.5\n", 2, "'0.5'"),
    "two relevances": ("q1 a d1 1\nq1 a d2 1\nq1 a d1 0\n", 3, "q1 a d1 with relevance 0 after 1"),
    "not utf-8": (b"q1 a d1 1\nq1 a d\xe9 1\n", 2, "0xe9"),
    "cut gzip": (gzip.compress(b"q1 a d1 1\n" * 3)[:-9], 1, "damaged gzip"),
}


@pytest.mark.parametrize("content, line, found", QRELS.values(), ids=QRELS)
def test_qrels(tmp_path, content, line, found):
    path = write(tmp_path / "qrels.txt", content)
    assert_names(message_of(files.read_qrels, path), path, line, found)


HEADER = "query-id\tcorpus-id\tscore\n"
BEIR_QRELS = {
    "missing": (None, None, "nothing there"),
    "folder": ("FOLDER", None, "a folder"),
    "empty": ("", None, "an empty file"),
    "header only": (HEADER, None, "no label"),
    "no header": ("q1\td1\t1\n", 1, "'q1\\td1\\t1'"),
    "header with spaces": ("query-id corpus-id score\n", 1, "query-id corpus-id"),
    "four columns": (f"{HEADER}q1\t0\td1\t1\n", 2, "4 columns"),
    "spaces for tabs": (f"{HEADER}q1\td1\t1\nq1 d2 1\n", 3, "'q1 d2 1'"),
    "empty id": (f"{HEADER}q1\t\t1\n", 2, "q1\\t\\t1"),
    "score is a word": (f"{HEADER}q1\td1\thigh\n", 2, "'high'"),
    "two scores": (f"{HEADER}q1\td1\t1\nq1\td1\t2\n", 3, "q1 d1 with score 2 after 1"),
    "not utf-8": (HEADER.encode() + b"q1\td\xff\t1\n", 2, "0xff"),
}


@pytest.mark.parametrize("content, line, found", BEIR_QRELS.values(), ids=BEIR_QRELS)
def test_beir_qrels(tmp_path, content, line, found):
    path = write(tmp_path / "test.tsv", content)
    assert_names(message_of(files.read_beir_qrels, path), path, line, found)


BEIR_QUERIES = {
    "no text": ('{"_id": "q1"}', 1, "no field 'text'"),
    "empty text": ('{"_id": "q1", "text": " "}', 1, "' '"),
    "id is a number": ('{"_id": 1, "text": "a"}', 1, "1"),
    "repeated id": ('{"_id": "q1", "text": "a"}\n' * 2, 2, "'q1' again"),
    "not json": ("q1\ttext\n", 1, "q1"),
}


@pytest.mark.parametrize("content, line, found", BEIR_QUERIES.values(), ids=BEIR_QUERIES)
def test_beir_queries(tmp_path, content, line, found):
    path = write(tmp_path / "queries.jsonl", content)
    assert_names(message_of(read_beir_queries, path), path, line, found)


def test_beir_labels_of_an_unknown_query(tmp_path):
    write(tmp_path / "queries.jsonl", '{"_id": "q1", "text": "a"}')
    (tmp_path / "qrels").mkdir()
    path = write(tmp_path / "qrels" / "test.tsv", f"{HEADER}q1\td1\t1\nq7\td1\t1\n")
    with pytest.raises(files.InputError) as caught:
        files.read_task_folder(tmp_path)
    assert_names(str(caught.value), path, 3, "'q7'")


def test_beir_query_in_two_splits(tmp_path):
    write(tmp_path / "queries.jsonl", '{"_id": "q1", "text": "a"}')
    (tmp_path / "qrels").mkdir()
    write(tmp_path / "qrels" / "dev.tsv", f"{HEADER}q1\td1\t1\n")
    write(tmp_path / "qrels" / "test.tsv", f"{HEADER}q1\td2\t1\n")
    with pytest.raises(files.InputError, match=r"test\.tsv:2: found query 'q1'.*'dev'"):
        files.read_beir(tmp_path)
    assert files.read_beir(tmp_path, "dev")[1] == {"q1": {"0": {"d1": 1}}}
    with pytest.raises(files.InputError, match="the splits dev, test"):
        files.read_beir(tmp_path, "train")


RUNS = {
    "missing": (None, None, "nothing there"),
    "folder": ("FOLDER", None, "a folder"),
    "empty": ("", None, "an empty file"),
    "comments only": ("# nothing\n", None, "no line"),
    "five columns": (f"{GOOD_RUN}\nq1 Q0 d2 2 9.0\n", 2, "5 columns in 'q1 Q0 d2 2 9.0'"),
    "qrels": ("q1 a d1 1\n", 1, "4 columns"),
    "score is a word": ("# c\nq1 Q0 d1 1 high tag\n", 2, "score 'high'"),
    "score is NaN": ("q1 Q0 d1 1 nan tag\n", 1, "score 'nan'"),
    "score is infinite": ("q1 Q0 d1 1 1e999 tag\n", 1, "score '1e999'"),
    "score with underscore": ("q1 Q0 d1 1 1_0 tag\n", 1, "score '1_0'"),
    "rank is a word": ("q1 Q0 d1 first 1 tag\n", 1, "rank 'first'"),
    "repeated passage": (
        f"{GOOD_RUN}\nq1 Q0 d2 2 8 t\nq1 Q0 d1 3 7 t\n",
        3,
        "'d1' of question 'q1' again (first at line 1)",
    ),
    "not utf-8": (f"{GOOD_RUN}\n".encode() + b"q1 Q0 d\xe9 2 1 t\n", 2, "d\\xe9"),
    "question not utf-8": (b"\xe9 Q0 d1 1 1 t\n", 1, "0xe9"),
    "cut gzip": (gzip.compress(GOOD_RUN.encode())[:-9], 1, "damaged gzip"),
}


@pytest.mark.parametrize("content, line, found", RUNS.values(), ids=RUNS)
def test_run(tmp_path, content, line, found):
    path = write(tmp_path / "run.txt", content)
    assert_names(message_of(files.read_run, path), path, line, found)


def test_run_of_another_task(tmp_path):
    path = write(tmp_path / "run.txt", GOOD_RUN)
    assert_names(message_of(lambda p: files.read_run(p, TASK), path), path, None, "'q1'")


def contexts(*items):
    return record(GOOD_BERDS, ctxs=list(items))


BERDS = {
    "no ctxs": (record(GOOD_BERDS, ctxs=...), 1, "no field 'ctxs'"),
    "ctxs are no list": (record(GOOD_BERDS, ctxs="body"), 1, "'body'"),
    "ctx is a text": (contexts("body"), 1, "ctxs[0] = 'body'"),
    "no question": (record(GOOD_BERDS, question=...), 1, "no field 'question'"),
    "empty question": (record(GOOD_BERDS, question=""), 1, "''"),
    "no text": (contexts({"title": "t"}), 1, "'ctxs[0].text'"),
    "score is a word": (contexts({"text": "a", "score": "high"}), 1, "ctxs[0].score = 'high'"),
    "score is NaN": (contexts({"text": "a", "score": float("nan")}), 1, "nan"),
    "score is a truth": (contexts({"text": "a", "score": True}), 1, "True"),
    "some scores": (contexts({"text": "a", "score": 1}, {"text": "b"}), 1, "no score in ctxs[1]"),
    "passage id with a space": (contexts({"id": "a b", "text": "a"}), 1, "'a b'"),
    "empty perspective": (record(GOOD_BERDS, perspectives=["x", ""]), 1, "perspectives[1]"),
    "perspective is a number": (record(GOOD_BERDS, perspectives=[1]), 1, "perspectives[0]' = 1"),
    "repeated question": (
        f"{record(GOOD_BERDS, qid=4)}\n\n{record(GOOD_BERDS, qid='4')}",
        3,
        "'4' again (first at line 1)",
    ),
    "one id, two texts": (
        "\n".join(record(GOOD_BERDS, qid=n, ctxs=[{"id": "d", "text": f"text {n}"}]) for n in (1, 2)),
        2,
        "'d' with another text or title than at line 1",
    ),
    "cut": (f"{GOOD_BERDS}\n{GOOD_BERDS[:40]}", 2, "Unterminated"),
    "not utf-8": (GOOD_BERDS.encode() + b'\n{"question": "\xff"}', 2, "0xff"),
}


@pytest.mark.parametrize("content, line, found", BERDS.values(), ids=BERDS)
def test_berds(tmp_path, content, line, found):
    path = write(tmp_path / "out.jsonl", content)
    assert_names(message_of(files.read_run, path), path, line, found)


DPR = {
    "empty list": ("[]", 1, "'[]"),
    "not closed": (f"[\n{GOOD_BERDS}\n", 3, "the end of the file"),
    "no comma": (f"[\n{GOOD_BERDS}\n{GOOD_BERDS}]", 3, "'{"),
    "comma at the end": (f"[{GOOD_BERDS},\n]", 2, "]"),
    "cut inside": (f"[{GOOD_BERDS},\n\n{GOOD_BERDS[:30]}", 3, "perspect"),
    "something after": (f"[{GOOD_BERDS}]\n\n[1]", 3, "'[1]"),
    "item is a number": (f"[{GOOD_BERDS},\n7]", 2, "int 7"),
    "lists of lists": ("[[1]]", 1, "[1]"),
    "no ctxs": (f"[\n\n{record(GOOD_BERDS, ctxs=...)}]", 3, "no field 'ctxs'"),
    "no text": (f"[{contexts({'id': 'd'})}]", 1, "'ctxs[0].text'"),
    "repeated question": (
        f"[{record(GOOD_BERDS, question_id='a')},\n{record(GOOD_BERDS, question_id='a')}]",
        2,
        "'a' again",
    ),
    "score is infinite": (f"[{contexts({'text': 'a', 'score': '-inf'})}]", 1, "'-inf'"),
    "not utf-8": (b'[{"question":\n"\xff"}]', 2, "0xff"),
}


@pytest.mark.parametrize("content, line, found", DPR.values(), ids=DPR)
def test_dpr(tmp_path, content, line, found):
    path = write(tmp_path / "out.json", content)
    assert_names(message_of(files.read_run, path), path, line, found)


MATCHING = {
    "unknown text": (record(GOOD_BERDS, question="Who?"), "'Who?', which no questions"),
    "text of two questions": (record(GOOD_BERDS, question="Twice?"), "'Twice?', which 2 questions"),
    "text of two questions, foreign id": (record(GOOD_BERDS, question="Twice?", id=9), "id '9' and the text"),
    "id of one, text of another": (record(GOOD_BERDS, question_id="t2"), "'t2' with the text of question 't1'"),
}


@pytest.mark.parametrize("content, found", MATCHING.values(), ids=MATCHING)
def test_records_that_match_no_question(tmp_path, content, found):
    path = write(tmp_path / "out.jsonl", content)
    assert_names(message_of(lambda p: files.read_run(p, TASK), path), path, 1, found)


DECLARATIONS = {
    "folder": ("FOLDER", None, "a folder"),
    "empty": ("", None, "an empty file"),
    "not json": ("name: web\n", 1, "name: web"),
    "cut": ('{"name": "web",\n', 2, "Expecting"),
    "a list": ('["web"]', 1, "['web']"),
    "name is a number": ('{"name": 3}', 1, "'name' = 3"),
    "empty name": ('{"name": " "}', 1, "' '"),
    "macro is a word": ('{"macro": "yes"}', 1, "'macro' = 'yes'"),
    "group is a list": ('{"group": ["a"]}', 1, "['a']"),
    "unknown field": ('{"names": "web"}', 1, "'names'"),
    "not utf-8": (b'{"name": "\xe9"}', 1, "0xe9"),
}


@pytest.mark.parametrize("content, line, found", DECLARATIONS.values(), ids=DECLARATIONS)
def test_declaration(tmp_path, content, line, found):
    write(tmp_path / "questions.jsonl", GOOD_QUESTION)
    path = write(tmp_path / "task.json", content)
    with pytest.raises(files.InputError) as caught:
        files.read_task_folder(tmp_path)
    assert_names(str(caught.value), path, line, found)


def test_task_folder_that_is_none(tmp_path):
    (tmp_path / "readme.txt").write_text("x")
    assert_names(message_of(files.read_task_folder, tmp_path), tmp_path, None, "readme.txt")
    assert_names(message_of(files.read_task_folder, tmp_path / "no"), tmp_path / "no", None, "nothing there")
    assert_names(message_of(files.read_task_folder, tmp_path / "readme.txt"), tmp_path / "readme.txt", None, "a file")


@pytest.mark.parametrize(
    "label, found", [("q7 a d1 1", "question 'q7'"), ("q1 z d1 1", "perspective 'z' of question 'q1'")]
)
def test_qrels_of_unknown_questions_and_perspectives(tmp_path, label, found):
    write(tmp_path / "questions.jsonl", GOOD_QUESTION)
    path = write(tmp_path / "qrels.txt", f"# labels\nq1 a d1 1\n{label}\n")
    with pytest.raises(files.InputError) as caught:
        files.read_task_folder(tmp_path)
    assert_names(str(caught.value), path, 3, found)
