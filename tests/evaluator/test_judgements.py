"""The judgement store and its command line (evaluator/judgements.py, evaluator/bundle.py)."""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.types import Passage, Perspective, Question
from evaluator import judgements
from evaluator.judgements import Counts, JudgementStore, judgement_key, main, stream
from evaluator.types import Judgement, Pair

YES = Judgement("ok", 0.75, "Yes", 0.001)
UNPARSED = Judgement("unparsed", None, "I cannot say")


def key(number):
    return number.to_bytes(16, "big")


def pair(passage, question="q"):
    perspective = Perspective("p", "It is so.")
    return Pair(Question(question, "Is it so?", (perspective,)), perspective, Passage(passage, f"text {passage}"))


class Counting:
    """Answers position n of a passage ``n`` by n / 100, and remembers what it was asked."""

    def __init__(self, order=None, stop_after=None):
        self.order, self.stop_after, self.asked = order, stop_after, []

    def render(self, pair):
        return pair.passage.text

    def judge(self, pairs):
        positions = range(len(pairs)) if self.order is None else self.order(len(pairs))
        for count, i in enumerate(positions):
            if count == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(pairs[i].passage.passage_id)
            yield i, Judgement("ok", int(pairs[i].passage.passage_id) / 100, "Yes")


@pytest.fixture
def store(tmp_path):
    return JudgementStore(tmp_path / "judgements")


def fill(store, items):
    with store.writer() as writer:
        for number, judgement in items:
            writer.add(key(number), judgement)
    store.refresh()


def test_key_is_128_bits_of_blake2b():
    # printf '3:abcinput' | b2sum -l 128
    assert judgement_key("abc", "input").hex() == "1d4224c08f34b4fc9366d86037c1c561"
    assert judgement_key("ab", "cinput") != judgement_key("abc", "input")
    assert len(judgement_key("", "\ud800")) == 16


def test_default_folder_is_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path))
    assert JudgementStore().folder == tmp_path / "judgements"
    assert len(JudgementStore()) == 0


PROBABILITY = st.floats(0, 1).map(lambda value: Judgement("ok", value, str(value), None))


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.binary(min_size=16, max_size=16), PROBABILITY | st.just(YES) | st.just(UNPARSED)))
def test_judgements_come_back_exactly(answers):
    with tempfile.TemporaryDirectory() as made:
        store = JudgementStore(Path(made))
        with store.writer() as writer:
            for k, judgement in answers.items():
                writer.add(k, judgement)
        store.refresh()
        asked = [*answers, b"\1" * 15 + b"\2"]
        assert store.get_many(asked) == [answers.get(k) for k in asked]
        found, probability, status = store.lookup(asked)
        assert found.tolist() == [k in answers for k in asked]
        expected = [answers[k].probability if k in answers else None for k in asked]
        assert [None if np.isnan(value) else value for value in probability.tolist()] == expected
        codes = {"ok": 0, "unparsed": 1}
        assert status.tolist() == [codes[answers[k].status] if k in answers else -1 for k in asked]
        assert len(store) == len(answers)


def test_writer_publishes_every_block_and_merges_at_the_end(store):
    with store.writer() as writer:
        for i in range(600):
            writer.add(key(i), YES)
            assert len(list(store.folder.glob("*.arrow"))) == (i + 1) // 256
    reader = JudgementStore(store.folder)
    assert len(reader) == 600
    report = reader.verify()
    assert (report.segments, report.records, report.duplicates) == (1, 600, 0)


def test_writer_publishes_when_time_is_up(store, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(judgements.time, "monotonic", lambda: now[0])
    with store.writer() as writer:
        writer.add(key(0), YES)
        now[0] = 9.9
        writer.add(key(1), YES)
        assert not store.folder.exists()
        now[0] = 10.0
        writer.add(key(2), YES)
        assert len(JudgementStore(store.folder)) == 3
        now[0] = 19.0
        writer.add(key(3), YES)
        assert len(JudgementStore(store.folder)) == 3
    assert len(JudgementStore(store.folder)) == 4


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_writer_publishes_what_it_has_on_errors(store, error):
    def fail():
        with store.writer() as writer:
            writer.add(key(1), YES)
            raise error

    with pytest.raises(error):
        fail()
    assert store.get_many([key(1)]) == [YES]


@pytest.mark.parametrize(
    "judgement",
    [
        Judgement("ok", 1.5),
        Judgement("ok", -0.1),
        Judgement("ok", float("nan")),
        Judgement("ok", None),
        Judgement("unparsed", 0.5),
        Judgement("maybe", 0.5),
    ],
)
def test_impossible_judgements_are_refused(store, judgement):
    with store.writer() as writer, pytest.raises(ValueError, match=r"probability|status"):
        writer.add(key(1), judgement)
    assert len(store) == 0


def test_half_a_surrogate_pair_in_an_answer_costs_no_block(store):
    fill(store, [(1, Judgement("ok", 0.5, "a\ud800b")), (2, YES)])
    assert store.get_many([key(1), key(2)]) == [Judgement("ok", 0.5, "a?b"), YES]


def test_stream_judges_once_and_reuses(store):
    pairs = [pair("3"), pair("5"), pair("3", question="other"), pair("8")]
    judge, counts = Counting(), Counts()
    first = dict(stream(judge, "f", pairs, store, counts))
    assert {i: judgement.probability for i, judgement in first.items()} == {0: 0.03, 1: 0.05, 2: 0.03, 3: 0.08}
    assert sorted(judge.asked) == ["3", "5", "8"]
    assert counts == Counts(needed=4, reused=0, judged=3)
    again = Counting()
    assert dict(stream(again, "f", [*pairs, pair("9")], store, counts)) == first | {4: Judgement("ok", 0.09, "Yes")}
    assert again.asked == ["9"]
    assert counts == Counts(needed=9, reused=4, judged=4)
    other = Counting()
    list(stream(other, "other weights", pairs[:1], store))
    assert other.asked == ["3"]


def test_stream_takes_any_order_and_yields_stored_answers_first(store):
    pairs = [pair(str(i)) for i in range(6)]
    list(stream(Counting(), "f", pairs[4:], store))
    judge = Counting(order=lambda n: reversed(range(n)))
    positions = [i for i, _ in stream(judge, "f", pairs, store)]
    assert positions == [4, 5, 3, 2, 1, 0]


def test_interrupted_stream_is_resumed_without_judging_twice(store):
    pairs = [pair(str(i % 100)) for i in range(100)]
    first = Counting(stop_after=37)
    with pytest.raises(KeyboardInterrupt):
        list(stream(first, "f", pairs, store))
    second = Counting()
    partial = stream(second, "f", pairs, JudgementStore(store.folder))
    for _ in range(60):
        next(partial)
    partial.close()  # somebody stops listening
    third = Counting()
    result = dict(stream(third, "f", pairs, JudgementStore(store.folder)))
    assert sorted(first.asked + second.asked + third.asked, key=int) == [str(i) for i in range(100)]
    assert (len(first.asked), len(second.asked)) == (37, 23)
    assert {i: judgement.probability for i, judgement in result.items()} == {i: i / 100 for i in range(100)}


@pytest.mark.parametrize(
    "order, message",
    [
        (lambda n: [0, 1, 0, 2], "position 0 wrongly: this position was answered before"),
        (lambda n: [0, 1], "left 1 of 3 pairs unanswered"),
        (lambda n: [], "left 3 of 3 pairs unanswered"),
    ],
)
def test_judges_that_answer_twice_or_not_at_all_are_named(store, order, message):
    judge = Counting(order=order)
    pairs = [pair(str(i)) for i in range(3)]
    with pytest.raises(ValueError, match=rf"judge Counting \(f\) .*{message}"):
        list(stream(judge, "f", pairs, store))
    after = Counting()  # what was good has been kept
    list(stream(after, "f", pairs, store))
    assert set(after.asked).isdisjoint(judge.asked)


@pytest.mark.parametrize(
    "answer",
    [(3, YES), (-1, YES), ("0", YES), (0, Judgement("ok", 2.0)), (0, Judgement("unparsed", 0.5)), (0, None)],
)
def test_answers_that_break_the_protocol_are_refused(store, answer):
    class Broken(Counting):
        def judge(self, pairs):
            yield 1, YES
            yield answer

    with pytest.raises(ValueError, match=r"judge Broken .* wrongly"):
        list(stream(Broken(), "f", [pair(str(i)) for i in range(3)], store))
    store.refresh()
    assert len(store) == 1


def labels(path, rows):
    names = ("question_id", "perspective_id", "passage_id", "status", "probability", "key")
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
    pq.write_table(table.set_column(5, "key", table.column("key").cast(pa.binary(16))), path)
    return path


@pytest.fixture
def run_labels(tmp_path):
    rows = [
        ("q1", "1", "d1", "ok", 0.75, key(1)),
        ("q1", "2", "d1", "unparsed", None, key(2)),
        ("q2", "1", "d2", "ok", 0.25, key(3)),
        ("q2", "1", "d1", "ok", 0.75, key(1)),  # one text, two questions
        ("q2", "1", "d9", "ok", 1.0, None),  # from gold labels
        ("q2", "1", "d8", "unjudged", None, key(99)),
        ("q2", "1", "d7", "ok", 0.5, key(98)),  # judged, but lost from the store
    ]
    return labels(tmp_path / "labels.parquet", rows)


ALL = [(1, YES), (2, UNPARSED), (3, Judgement("ok", 0.25, "No", None)), (4, YES)]


def test_bundle_of_everything_moves_a_store(store, tmp_path, capsys):
    fill(store, ALL)
    bundle, other = tmp_path / "b.parquet", JudgementStore(tmp_path / "other")
    assert main(["--store", str(store.folder), "export", "--output", str(bundle)]) == 0
    assert pq.read_table(bundle).num_rows == 4
    with other.writer() as writer:
        writer.add(key(1), Judgement("ok", 0.5, "mine"))
    assert main(["--store", str(other.folder), "merge", str(bundle)]) == 0
    assert "4 rows read, 4 judgements new or other" in capsys.readouterr().out  # one of them differs from "mine"
    other.refresh()
    assert other.get_many([key(i) for i in range(2, 6)]) == [*(judgement for _, judgement in ALL[1:]), None]
    assert other.verify().duplicates == 1
    # Whichever of the two is taken: after the bundle of each is merged into the other, both take the same.
    back = tmp_path / "back.parquet"
    assert main(["--store", str(other.folder), "export", "--output", str(back)]) == 0
    assert main(["--store", str(store.folder), "merge", str(back)]) == 0
    store.refresh()
    everything = [key(i) for i in range(1, 5)]
    assert store.get_many(everything) == other.get_many(everything)


def test_bundle_of_a_run_holds_ids_and_shows_holes(store, run_labels, tmp_path, capsys):
    fill(store, ALL)
    bundle, qrels = tmp_path / "b.parquet", tmp_path / "qrels.txt"
    arguments = ["--store", str(store.folder), "export", "--output", str(bundle), "--qrels", str(qrels)]
    assert main([*arguments, "--labels", str(run_labels), str(run_labels)]) == 0
    table = pq.read_table(bundle)
    assert {(*row.values(),) for row in table.to_pylist()} == {
        (key(1), "q1", "1", "d1", "ok", 0.75, "Yes", 0.001),
        (key(1), "q2", "1", "d1", "ok", 0.75, "Yes", 0.001),
        (key(2), "q1", "2", "d1", "unparsed", None, "I cannot say", None),
        (key(3), "q2", "1", "d2", "ok", 0.25, "No", None),
    }
    assert table.num_rows == 4
    assert "4 rows; 2 labels whose key is not in the store" in capsys.readouterr().out
    assert qrels.read_text() == "q1 1 d1 1\nq2 1 d1 1\nq2 1 d2 0\nq2 1 d7 1\nq2 1 d9 1\n"
    laptop = JudgementStore(tmp_path / "laptop")
    main(["--store", str(laptop.folder), "merge", str(bundle)])
    found, probability, _ = laptop.lookup([key(i) for i in (1, 2, 3, 4, 99)])
    assert found.tolist() == [True, True, True, False, False]
    assert probability[[0, 2]].tolist() == [0.75, 0.25]
    assert main([*arguments, "--labels", str(run_labels), "--threshold", "0.2"]) == 0
    assert "q2 1 d2 1\n" in qrels.read_text()


def test_qrels_of_two_judges_are_refused(store, run_labels, tmp_path, capsys):
    second = labels(tmp_path / "second.parquet", [("q1", "1", "d1", "ok", 0.7, key(50))])
    files = ["--labels", str(run_labels), "--labels", str(second), "--qrels", str(tmp_path / "q")]
    assert main(["--store", str(store.folder), "export", "--output", str(tmp_path / "b"), *files]) == 2
    assert "1 pairs two probabilities" in capsys.readouterr().err
    assert not (tmp_path / "q").exists()
    assert not (tmp_path / "b").exists()


def test_verify_reports_counts_and_damage(store, capsys):
    fill(store, ALL)
    fill(JudgementStore(store.folder), [(1, UNPARSED)])
    assert main(["--store", str(store.folder), "verify"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["2", "4", "1", "0"]
    broken = max(store.folder.iterdir(), key=lambda path: path.stat().st_size)
    broken.write_bytes(broken.read_bytes()[:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["--store", str(store.folder), "verify"]) == 1
    assert broken.name in capsys.readouterr().out


@pytest.mark.parametrize("command", ["export --output b --qrels q", "export --output b --labels none.parquet"])
def test_mistakes_of_the_user_are_one_line(store, command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--store", str(store.folder), *command.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_bad_bundles_are_one_line(store, tmp_path, capsys):
    (tmp_path / "text.parquet").write_text("hello")
    pq.write_table(pa.table({"key": [b"x"]}), tmp_path / "columns.parquet")
    fill(store, ALL)
    main(["--store", str(store.folder), "export", "--output", str(tmp_path / "good.parquet")])
    table = pq.read_table(tmp_path / "good.parquet")
    worse = table.set_column(5, "probability", pa.array([0.5, None, 7.0, 0.5]))
    pq.write_table(worse, tmp_path / "range.parquet")
    short = table.set_column(0, "key", pa.array([b"short"] * 4))
    pq.write_table(short, tmp_path / "keys.parquet")
    empty = table.set_column(0, "key", pa.nulls(4, pa.binary(16)))
    pq.write_table(empty, tmp_path / "nokeys.parquet")
    capsys.readouterr()
    for name in ("absent", "text", "columns", "range", "keys", "nokeys"):
        other = tmp_path / f"other-{name}"
        assert main(["--store", str(other), "merge", str(tmp_path / f"{name}.parquet")]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"{name}.parquet: " in error
        assert not other.exists()


def test_module_runs_as_a_command(tmp_path):
    command = [sys.executable, "-m", "evaluator.judgements", "--store", str(tmp_path / "none"), "verify"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "judgements      0" in done.stdout
