"""BERDS and DPR files: ids, order, matching with a task, and the way back."""

import gzip
import json
import warnings

import pytest

from corpora.files import InputError, passage_hash, read_run, write_berds, write_dpr, write_run
from corpora.types import Hit, Passage, Perspective, Question
from tests.conftest import DATA

BERDS = DATA / "berds"
TASK = [
    Question("arguana-1", "Tea?", (Perspective("0", "Yes"), Perspective("1", "No"))),
    Question("arguana-2", "Milk?"),
    Question("arguana-3", "Sugar?"),
]


def write(path, records, *, as_list=False):
    text = json.dumps(records, indent=1) if as_list else "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def item(question, *contexts, **fields):
    return {"question": question, "perspectives": ["Yes", "No"], "ctxs": list(contexts), **fields}


def ids(ranking):
    return [hit.passage_id for hit in ranking]


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("name", ["out.txt", "out.gz"])
def test_form_is_known_by_content(tmp_path, as_list, name):
    records = [
        item("Tea?", {"id": "d1", "title": "T", "text": "a", "score": "2.5"}, {"docid": 7, "text": "b", "score": "1"}),
        item("Milk?", {"passage_id": "d1", "title": "T ", "text": "a", "score": 3}),
    ]
    file = read_run(write(tmp_path / name, records, as_list=as_list))
    assert file.run == {"1": (Hit("d1", 2.5), Hit("7", 1.0)), "2": (Hit("d1", 3.0),)}
    assert file.passages == {"d1": Passage("d1", "a", "T"), "7": Passage("7", "b")}
    assert file.questions[0] == Question("1", "Tea?", (Perspective("0", "Yes"), Perspective("1", "No")))
    assert file.has_ids
    assert file.tag == "out"


def test_dpr_of_one_line_without_perspectives(tmp_path):
    path = tmp_path / "dpr.json"
    path.write_text(
        '  [{"question":"Tea?","answers":["x"],"ctxs":[{"id":"wiki:1","title":"T","text":"a","score":"8"}]}]'
    )
    file = read_run(path)
    assert file.run == {"1": (Hit("wiki:1", 8.0),)}
    assert file.questions == (Question("1", "Tea?"),)  # answers are no perspectives


def test_passages_without_ids_are_named_by_their_contents(tmp_path):
    records = [
        item("Tea?", {"title": "T", "text": "a"}, {"title": None, "text": "b"}),
        item("Milk?", {"title": "T", "text": "a "}),
    ]
    file = read_run(write(tmp_path / "out.jsonl", records))
    assert not file.has_ids
    assert len(file.passages) == 2
    assert ids(file.run["1"])[0] == ids(file.run["2"])[0] == passage_hash(Passage("any", "a", "T"))
    assert {(p.title, p.text) for p in file.passages.values()} == {("T", "a"), ("", "b")}
    assert all(key == passage.passage_id for key, passage in file.passages.items())


def test_without_scores_the_list_is_the_ranking(tmp_path):
    path = write(tmp_path / "o", [item("Tea?", {"id": "z", "text": "z"}, {"id": "a", "text": "a", "score": None})])
    assert read_run(path).run["1"] == (Hit("z", 2.0), Hit("a", 1.0))


def test_tied_scores_keep_the_order_of_the_list(tmp_path):
    contexts = [{"id": i, "text": i, "score": score} for i, score in (("z", 3), ("y", 2), ("a", 2), ("b", 1))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(read_run(write(tmp_path / "o", [item("Tea?", *contexts)])).run["1"]) == ["z", "y", "a", "b"]


def test_scores_that_disagree_with_the_list_decide(tmp_path):
    contexts = [{"id": i, "text": i, "score": score} for i, score in (("z", 1), ("y", 2), ("a", 2))]
    path = write(tmp_path / "o", [item("Tea?", *contexts[1:]), item("Milk?", *contexts)])
    with pytest.warns(UserWarning, match=r"o:2: .* in 1 rankings") as caught:
        run = read_run(path).run
    assert len(caught) == 1
    assert ids(run["1"]) == ["y", "a"]
    assert ids(run["2"]) == ["a", "y", "z"]


def test_repeated_passages_are_dropped_with_a_count(tmp_path):
    contexts = [{"id": i, "text": i, "score": score} for i, score in (("z", 3), ("a", 2), ("z", 1), ("a", 0))]
    path = write(tmp_path / "o", [item("Tea?"), item("Milk?", *contexts)])
    with pytest.warns(UserWarning, match=r"o:2: found 2 passages again"):
        run = read_run(path).run
    assert run == {"1": (), "2": (Hit("z", 3.0), Hit("a", 2.0))}


def test_questions_are_found_by_id_and_else_by_text(tmp_path):
    context = {"id": "d", "text": "d"}
    records = [
        item("Milk? ", context, id=17),  # the authors' own number: no id of the task
        item("Tea?", context, question_id="arguana-1", id="arguana-2"),
        item("Other words", context, qid="arguana-3"),
    ]
    file = read_run(write(tmp_path / "o", records), TASK)
    assert list(file.run) == ["arguana-2", "arguana-1", "arguana-3"]
    assert [question.question_id for question in file.questions] == list(file.run)


def test_one_of_several_queries_of_a_question(tmp_path):
    """The authors' expansion files name the question in org_id and org_q, the query in id and question."""
    context = {"id": "d", "text": "d"}
    record = item("Tea? It is good", context, org_id="9", id=4448, org_q="Tea?")
    assert list(read_run(write(tmp_path / "o", [record])).run) == ["9"]
    assert list(read_run(write(tmp_path / "o", [record]), TASK).run) == ["arguana-1"]
    with pytest.raises(InputError, match=r"o:2: found question '9' again .*merge"):
        read_run(write(tmp_path / "o", [record, {**record, "id": 4449}]))


RUN = {
    "arguana-2": (Hit("d2", 3.5), Hit("d1", 3.5), Hit("d3", -1e-9)),
    "arguana-1": (Hit("d1", 1e300),),
    "arguana-3": (),
}
PASSAGES = {
    "d1": Passage("d1", "a\u2028b", "T", "https://example.org"),
    "d2": Passage("d2", "é\n", ""),
    "d3": Passage("d3", "", "only a title"),
}


@pytest.mark.parametrize("writer", [write_berds, write_dpr])
@pytest.mark.parametrize("name", ["o.json", "o.json.gz"])
def test_round_trip(tmp_path, writer, name):
    writer(tmp_path / name, RUN, TASK, PASSAGES)
    file = read_run(tmp_path / name, TASK)
    assert file.run == RUN
    assert list(file.run) == list(RUN)
    assert file.passages == PASSAGES
    assert file.has_ids
    assert [question.text for question in file.questions] == ["Milk?", "Tea?", "Sugar?"]
    assert read_run(tmp_path / name).run == RUN


@pytest.mark.parametrize("writer", [write_berds, write_dpr])
def test_the_position_decides_in_written_files(tmp_path, writer):
    run = {"arguana-1": (Hit("d1", 1.0), Hit("d3", 9.0), Hit("d2", 9.0))}
    writer(tmp_path / "o", run, TASK, PASSAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(read_run(tmp_path / "o").run["arguana-1"]) == ["d1", "d3", "d2"]


def test_fields_that_other_readers_expect(tmp_path):
    write_berds(tmp_path / "b", {"arguana-1": RUN["arguana-2"][:1]}, TASK, PASSAGES)
    assert json.loads((tmp_path / "b").read_text(encoding="utf-8")) == {
        "question_id": "arguana-1",
        "question": "Tea?",
        "perspectives": ["Yes", "No"],
        "ctxs": [{"id": "d2", "title": "", "text": "é\n", "score": 3.5}],
    }
    write_dpr(tmp_path / "d", {"arguana-1": (), "arguana-2": ()}, TASK, PASSAGES)
    loaded = json.loads((tmp_path / "d").read_text(encoding="utf-8"))
    assert [(record["question"], record["answers"]) for record in loaded] == [("Tea?", ["Yes", "No"]), ("Milk?", [])]


@pytest.mark.parametrize("writer", [write_berds, write_dpr])
def test_writers_refuse_what_is_unknown(tmp_path, writer):
    with pytest.raises(ValueError, match="question 'x'"):
        writer(tmp_path / "o", {"x": ()}, TASK, PASSAGES)
    with pytest.raises(ValueError, match="passage 'd9'"):
        writer(tmp_path / "o", {"arguana-1": (Hit("d9", 1.0),)}, TASK, PASSAGES)
    with pytest.raises(ValueError, match="nan"):
        writer(tmp_path / "o", {"arguana-1": (Hit("d1", float("nan")),)}, TASK, PASSAGES)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_the_same_in_all_three_forms(tmp_path):
    write_run(tmp_path / "t", RUN, "tag")
    write_berds(tmp_path / "b", RUN, TASK, PASSAGES)
    write_dpr(tmp_path / "d", RUN, TASK, PASSAGES)
    orders = [{q: ids(r) for q, r in read_run(tmp_path / n, TASK).run.items() if r} for n in "tbd"]
    assert orders[0] == orders[1] == orders[2] == {"arguana-2": ["d2", "d1", "d3"], "arguana-1": ["d1"]}


@pytest.mark.data
@pytest.mark.skipif(not BERDS.is_dir(), reason="needs the public data (see CONTRIBUTING.md)")
@pytest.mark.parametrize("name", ["arguana_generated", "kialo", "opinionqa"])
def test_the_authors_question_files_are_no_runs(name):
    path = BERDS / f"{name}_query_exp.dev.jsonl"
    with pytest.raises(InputError) as caught:
        read_run(path)
    assert str(caught.value).startswith(f"{path}:1: found no field 'ctxs' (fields: org_id, id, org_q, ")
    assert "questions, not a run" in str(caught.value)
