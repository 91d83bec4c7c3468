"""TREC runs and qrels: order, warnings, the writer's scores, and agreement with another reader."""

import gzip
import math
import tempfile
import warnings
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpora.files import read_qrels, read_run, write_qrels, write_run
from corpora.trec import decreasing
from corpora.types import Hit, Question
from tests.conftest import DATA

TREC_WEB = DATA / "trec-web-2013"
needs_trec_web = pytest.mark.skipif(not TREC_WEB.is_dir(), reason="needs the public data (see CONTRIBUTING.md)")


def ids(ranking):
    return [hit.passage_id for hit in ranking]


def test_order_is_by_score_then_id(tmp_path):
    path = tmp_path / "run"
    path.write_text(
        "q2 Q0 a 1 1 t\nq1 Q0 c 2 5 t\nq1 Q0 b 3 5.0 t\n\nq1 Q0 a 4 -1e2 t\nq1 Q0 d 1 7 t\nq2 Q0 b 2 .5 t\n"
    )
    with pytest.warns(UserWarning, match="rank column") as caught:
        run = read_run(path).run
    assert run == {
        "q2": (Hit("a", 1.0), Hit("b", 0.5)),
        "q1": (Hit("d", 7.0), Hit("b", 5.0), Hit("c", 5.0), Hit("a", -100.0)),
    }
    # ranks of q1 in this order are 1, 3, 2, 4: lines 3 (b) and 2 (c) stand elsewhere
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message.startswith(f"{path}:2: ")
    assert "in 2 lines" in message


@pytest.mark.parametrize("ranks", [(1, 2, 3), (0, 1, 2), (5, 70, 71), (1, 1, 1), (0, 0, 9)])
def test_ranks_that_agree_with_the_scores_warn_nothing(tmp_path, ranks):
    path = tmp_path / "run"
    path.write_text("".join(f"q Q0 d{i} {rank} {-i} t\n" for i, rank in enumerate(ranks)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(read_run(path).run["q"]) == ["d0", "d1", "d2"]


def test_comments_gzip_and_odd_ids(tmp_path):
    path = tmp_path / "run.txt"  # gzip by content
    path.write_bytes(gzip.compress(b"# ir_metadata.start\n# a: b c d e\n\nq Q0 d\xc2\xa0#1 1 2 my-tag\r\n"))
    file = read_run(path)
    assert file.run == {"q": (Hit("d\xa0#1", 2.0),)}
    assert (file.tag, file.has_ids, file.passages, file.questions) == ("my-tag", True, {}, ())


def test_questions_outside_the_task_are_counted(tmp_path):
    path = tmp_path / "run"
    path.write_text("q1 Q0 a 1 1 t\nq7 Q0 a 1 1 t\nq8 Q0 a 1 1 t\n")
    with pytest.warns(UserWarning, match="2 questions that the task does not hold, for example 'q7'"):
        assert set(read_run(path, [Question("q1", "?")]).run) == {"q1", "q7", "q8"}


FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.floats(min_value=0, max_value=1e-40),
    st.sampled_from([0.0, -0.0, 1.0, 1 + 2**-30, 16777216.0, 16777217.0, 1e300, -1e300, 3.4028234663852886e38]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(FLOATS, max_size=40))
@example([-1e300] * 5)
@example([1e300] * 5)
@example([0.0, -0.0, 0.0, 5e-324])
def test_decreasing_survives_float32(scores):
    values = np.array(decreasing(scores), dtype=np.float64)
    assert len(values) == len(scores)
    assert np.isfinite(values).all()
    rounded = values.astype(np.float32)
    assert (rounded == values).all()
    assert (rounded[1:] < rounded[:-1]).all()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(min_value=-(2.0**100), max_value=2.0**100, width=32), max_size=30, unique_by=lambda x: x + 0.0)
)
def test_float32_scores_that_decrease_already_stay(scores):
    scores = sorted(scores, reverse=True)
    assert decreasing(scores) == scores


IDS = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C", "Cs")), min_size=1, max_size=6).filter(
    lambda text: text.split() == [text] and text[0] not in "#{["
)
RANKINGS = st.lists(st.tuples(IDS, FLOATS), min_size=1, max_size=25, unique_by=lambda pair: pair[0])


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(IDS, RANKINGS, min_size=1, max_size=4), st.sampled_from(["run.trec", "run.trec.gz"]))
def test_written_runs_are_read_in_the_same_order(rankings, name):
    run = {question: tuple(Hit(*pair) for pair in ranking) for question, ranking in rankings.items()}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        path = Path(folder) / name
        write_run(path, run, "tag")
        again = read_run(path)
        assert {q: ids(ranking) for q, ranking in again.run.items()} == {q: ids(r) for q, r in run.items()}
        assert again.tag == "tag"
        # trec_eval's order: float32 scores, ties by id descending; a tie would show here
        for question, ranking in again.run.items():
            by_float32 = sorted(ranking, key=lambda hit: (np.float32(hit.score), hit.passage_id), reverse=True)
            assert ids(by_float32) == ids(run[question])


def test_other_tools_read_a_tied_run_in_our_order(tmp_path):
    run = {"q": tuple(Hit(passage_id, 0.1) for passage_id in "badc")}
    write_run(tmp_path / "run", run, "t")
    qrels = [ir_measures.Qrel("q", passage_id, 1) for passage_id in "ba"]
    scored = list(ir_measures.read_trec_run(str(tmp_path / "run")))
    assert ir_measures.pytrec_eval.calc_aggregate([ir_measures.P @ 2], qrels, scored) == {ir_measures.P @ 2: 1.0}


def test_lines_of_a_written_run(tmp_path):
    path = tmp_path / "new" / "run.trec"
    write_run(path, {"q": (Hit("b", 2.5), Hit("a", 3.0)), "empty": ()}, "t")
    # the position decides: a's score becomes the float32 below 2.5, which is 2.5 - 2**-22 = 2.49999976...
    assert path.read_text() == "q Q0 b 1 2.5 t\nq Q0 a 2 2.49999976 t\n"


def test_gzip_bytes_depend_on_the_content_alone(tmp_path, monkeypatch):
    run = {"q": (Hit("b", 2.5),)}
    write_run(tmp_path / "one.gz", run, "t")
    monkeypatch.setattr("time.time", lambda: 1e9)
    write_run(tmp_path / "two.gz", run, "t")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.gz", "two.gz"]


@pytest.mark.parametrize(
    "run, tag, found",
    [
        ({"q": (Hit("a b", 1.0),)}, "t", "'a b'"),
        ({"q\u3000": (Hit("a", 1.0),)}, "t", "question id"),
        ({"#q": (Hit("a", 1.0),)}, "t", "'#q'"),
        ({"": (Hit("a", 1.0),)}, "t", "''"),
        ({"q": (Hit("a", 1.0),)}, "my tag", "'my tag'"),
        ({"q": (Hit("a", math.nan),)}, "t", "nan"),
        ({"q": (Hit("a", -math.inf),)}, "t", "-inf"),
        ({"q": (Hit("a", 2.0), Hit("a", 1.0))}, "t", "'a' twice"),
    ],
)
def test_writer_refuses(tmp_path, run, tag, found):
    with pytest.raises(ValueError, match="found") as caught:
        write_run(tmp_path / "run", run, tag)
    assert found in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_metadata_stands_beside_the_run(tmp_path):
    metadata = {
        "actor": {"team": "us: them", "fields": []},
        "research goal": {"description": "two\nlines \u0085 #1"},
        "method": {"automatic": True, "retrieval": [{"name": "bm25", "b": 0.4, "eps": 1e-05}, "no"], "n": None},
    }
    write_run(tmp_path / "run.gz", {"q": (Hit("a", 1.0),)}, "t", metadata)
    text = (tmp_path / "run.gz.ir_metadata.yml").read_text()
    assert text == (
        'tag: "t"\n'
        "actor:\n"
        '  team: "us: them"\n'
        "  fields: []\n"
        "research goal:\n"
        '  description: "two\\nlines \\U00000085 #1"\n'
        "method:\n"
        "  automatic: true\n"
        "  retrieval:\n"
        "    -\n"
        '      name: "bm25"\n'
        "      b: 0.4\n"
        "      eps: 1.0e-05\n"
        '    - "no"\n'
        '  "n": null\n'
    )
    assert gzip.decompress((tmp_path / "run.gz").read_bytes()) == b"q Q0 a 1 1 t\n"


def test_qrels_are_compressed_by_suffix(tmp_path):
    write_qrels(tmp_path / "qrels.gz", {"q": {"0": {"d": -2}}})
    assert gzip.decompress((tmp_path / "qrels.gz").read_bytes()) == b"q 0 d -2\n"


@pytest.mark.data
@needs_trec_web
@pytest.mark.parametrize("system", ["biased", "oracle", "random"])
def test_runs_agree_with_ir_measures(system):
    path = TREC_WEB / f"run.{system}.txt.gz"
    file = read_run(path)
    assert file.tag == system
    expected = {}
    for scored in ir_measures.read_trec_run(str(path)):
        expected.setdefault(scored.query_id, {})[scored.doc_id] = scored.score
    assert {q: {hit.passage_id: hit.score for hit in ranking} for q, ranking in file.run.items()} == expected
    # these runs rank 1, 2, 3 ... in the order of their lines
    assert {q: ids(ranking) for q, ranking in file.run.items()} == {q: list(docs) for q, docs in expected.items()}


@pytest.mark.data
@needs_trec_web
def test_qrels_agree_with_ir_measures(tmp_path):
    path = TREC_WEB / "qrels.web.201-250.ndeval.txt"
    qrels = read_qrels(path)
    labels = {(q, s, d, r) for q, of_q in qrels.items() for s, of_s in of_q.items() for d, r in of_s.items()}
    # ir_measures calls the second column the iteration
    expected = {(x.query_id, x.iteration, x.doc_id, x.relevance) for x in ir_measures.read_trec_qrels(str(path))}
    assert labels == expected
    assert len(qrels) == 50
    assert len({(q, s) for q, s, _, r in labels if r > 0}) == 152  # subtopics, as shared/data/README.md says
    write_qrels(tmp_path / "again", qrels)
    assert read_qrels(tmp_path / "again") == qrels
