"""``--labelled-pairs``: a second line of scores, corrected by a judge's known errors, from the command line."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.sample import main as draw
from corpora import demo
from corpora.files import read_qrels
from evaluator.pairs import read_pairs, write_pairs

QRELS = Path(demo.__file__).parent / "demo" / "qrels.txt"
JUDGE = """
import hashlib
from pathlib import Path
from corpora.files import read_qrels
from evaluator.types import Judgement
class Noisy:
    '''Knows the demo's qrels, misses about one support in three, and calls about one other pair in twelve a support.'''
    def __init__(self, qrels: str):
        self.qrels = qrels
    def render(self, pair):
        return f"{pair.passage.passage_id}|{pair.perspective.perspective_id}"
    def judge(self, pairs):
        known = {}
        for subtopics in read_qrels(Path(self.qrels)).values():
            for name, passages in subtopics.items():
                known[name] = {p for p, relevance in passages.items() if relevance > 0}
        for i, pair in enumerate(pairs):
            chance = int(hashlib.sha256(self.render(pair).encode()).hexdigest()[:8], 16) / 2**32
            true = pair.passage.passage_id in known.get(pair.perspective.perspective_id, ())
            yield i, Judgement("ok", float(chance > 0.35 if true else chance < 0.08))
class NoUse(Noisy):
    def judge(self, pairs):
        for i, pair in enumerate(pairs):
            yield i, Judgement("ok", float(len(pair.passage.text) % 2))
"""


@pytest.fixture
def noisy(cli, tmp_path, monkeypatch):
    """Runs the demo with the noisy judge; the function takes further flags."""
    (tmp_path / "noise.py").write_text(JUDGE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("noise", None)

    def call(*more, judge="noise:Noisy"):
        given = ["--corpus", "demo", "--depth", "20", "--judge", judge, "--judge-args", f"qrels={QRELS}"]
        return cli(*given, "--metrics", "Precision@5", "MRecall@5", *more)

    return call


@pytest.fixture
def labelled(noisy, tmp_path, capsys):
    """A file of drawn pairs with the demo's own labels; the function takes the flags of the draw."""
    assert noisy().code == 0
    (path,) = (tmp_path / "results").glob("*/*/*/scores.json")
    qrels = read_qrels(QRELS)

    def make(*flags: str) -> Path:
        out = tmp_path / "people.csv"
        out.unlink(missing_ok=True)
        given = [str(path.parent), "--output", str(out), *flags, "--cache", str(tmp_path / "cache")]
        assert draw(given) == 0, capsys.readouterr().err
        capsys.readouterr()
        pairs = read_pairs(out, unlabelled=True)
        out.unlink()
        write_pairs(out, [replace(each, label=true(qrels, each.pair)) for each in pairs])
        return out

    return make


def cli_metrics(noisy, path: Path, *metrics: str) -> str:
    """What is printed for these metrics (of several --metrics the last counts)."""
    found = noisy("--labelled-pairs", path, "--metrics", *metrics)
    assert found.code == 0, found.err
    return found.out


def true(qrels, pair) -> bool:
    found = qrels[pair.question.question_id].get(pair.perspective.perspective_id, {})
    return found.get(pair.passage.passage_id, 0) > 0


def corrected(tmp_path: Path) -> dict:
    (path,) = (tmp_path / "results").glob("*/*/*/error_aware.json")
    return json.loads(path.read_text())


def test_pairs_give_a_second_line(noisy, labelled, tmp_path, cli):
    path = labelled("--unit", "pair", "--n", "200")
    before = (next((tmp_path / "results").glob("*/*/*/scores.json"))).read_bytes()
    plain = noisy()
    found = noisy("--labelled-pairs", path)
    assert found.code == 0, found.err
    assert found.out.startswith(plain.out)  # the headline is as it was
    assert "error-aware scores (modelled): a second line, not the headline" in found.out
    assert "Assumed: the judge errs on this run as often as on the labelled pairs" in found.out
    assert next((tmp_path / "results").glob("*/*/*/scores.json")).read_bytes() == before
    document = corrected(tmp_path)
    assert sorted(document["scores"]) == ["MRecall@5", "Precision@5"]
    gold = cli("--corpus", "demo", "--depth", "20", "--json", "--metrics", "Precision@5", "MRecall@5")
    for name, entry in document["scores"].items():
        assert entry["low"] < entry["mean"] < entry["high"]
        assert entry["low"] < gold.mean(name) < entry["high"]
        row = [line.split() for line in found.out.splitlines() if line.startswith(name)][-1]
        assert row[1] == f"{100 * entry['judged']:.2f}"
        assert row[2] == f"{100 * entry['mean']:.2f}"
        # A third of the supports is missed, which a better estimate must make good in part.
        assert abs(entry["mean"] - gold.mean(name)) < abs(entry["judged"] - gold.mean(name))
    assert noisy("--labelled-pairs", path).out == found.out  # a function of its inputs
    assert corrected(tmp_path) == document
    # A metric's value does not depend on the others asked for; the file has all that scores.json has.
    alone = cli_metrics(noisy, path, "MRecall@5", "MRecall@10")
    assert f"{100 * document['scores']['MRecall@5']['mean']:.2f}" in alone.split("error-aware")[1]
    assert sorted(corrected(tmp_path)["scores"]) == ["MRecall@10", "MRecall@5", "Precision@5"]
    assert corrected(tmp_path)["scores"]["MRecall@5"] == document["scores"]["MRecall@5"]
    silent = noisy("--labelled-pairs", path, "--json")
    assert json.loads(silent.out)["scores"].keys() == {"MRecall@5", "MRecall@10", "Precision@5"}


def test_too_few_whole_questions_serve_as_pairs(noisy, labelled, tmp_path):
    path = labelled("--unit", "question", "--n", "24")
    found = noisy("--labelled-pairs", path)
    assert "The labelled pairs are 21 whole questions of this run, which serve as pairs: from 30 on" in found.out
    # The demo has 24 questions, fewer than the 30 that estimates from whole questions need: they count as pairs.
    assert found.code == 0, found.err
    assert corrected(tmp_path)["method"] == "modelled"


def test_when_people_labelled_all_questions_the_scores_are_theirs(cli, noisy, tmp_path, capsys):
    """40 questions, all drawn: nothing is left to estimate, whatever the judge says."""
    task = tmp_path / "forty"
    task.mkdir()
    names = [f"{i:02}" for i in range(40)]
    views = [{"perspective_id": "{}.1", "text": "yes"}, {"perspective_id": "{}.2", "text": "no"}]
    rows = [{"question_id": n, "question": f"topic{n}", "perspectives": views} for n in names]
    (task / "questions.jsonl").write_text("".join(json.dumps(r).replace("{}", r["question_id"]) + "\n" for r in rows))
    texts = {f"{n}-{j}": f"topic{n} " + "word " * j for n in names for j in range(4)}
    (task / "corpus.jsonl").write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in texts.items()))
    # The first passage supports one side, the second the other side of every third question, the others nothing.
    lines = [f"{n} {n}.1 {n}-0 1" for n in names] + [f"{n} {n}.2 {n}-1 1" for n in names[::3]]
    (task / "qrels.txt").write_text("\n".join(lines) + "\n")
    judge = ["--judge", "noise:Noisy", "--judge-args", f"qrels={task / 'qrels.txt'}"]
    flags = ["--task", task, *judge, "--metrics", "MRecall@5", "Precision@5"]
    first = cli(*flags)
    assert first.code == 0, first.err
    folder = next((tmp_path / "results" / "forty").glob("*/*/scores.json")).parent
    out = tmp_path / "people.csv"
    drawn = ["--unit", "question", "--n", "40", "--k", "5", "--output", str(out), "--cache", str(tmp_path / "cache")]
    assert draw([str(folder), "--task", str(task), *drawn]) == 0, capsys.readouterr().err
    qrels = read_qrels(task / "qrels.txt")
    pairs = [replace(each, label=true(qrels, each.pair)) for each in read_pairs(out, unlabelled=True)]
    out.unlink()
    write_pairs(out, pairs)
    found = cli(*flags, "--labelled-pairs", out)
    assert found.code == 0, found.err
    document = json.loads((folder / "error_aware.json").read_text())
    headline = json.loads((folder / "scores.json").read_text())["scores"]
    assert document["method"] == "prediction-powered"
    # Both sides: 14 of 40 questions. Supports among four passages: 2 of 4 in 14 questions, 1 of 4 in 26; k is 5.
    wanted = {"MRecall@5": 14 / 40, "Precision@5": (14 * 2 + 26) / 40 / 5}
    for name, mean in wanted.items():
        assert document["scores"][name]["mean"] == pytest.approx(mean)
        assert document["scores"][name]["judged"] == pytest.approx(headline[name]["mean"])
        assert document["scores"][name]["judged"] != pytest.approx(mean)


def test_pairs_without_labels_are_left_out_and_too_few_are_refused(noisy, labelled, tmp_path):
    path = labelled("--unit", "pair", "--n", "200")
    pairs = read_pairs(path)
    path.unlink()
    write_pairs(path, [replace(each, label=each.label if i < 40 else None) for i, each in enumerate(pairs)])
    found = noisy("--labelled-pairs", path)
    assert found.code == 2
    assert "Precision@5" in found.out  # the headline is printed
    assert found.err.count("\n") == 1
    assert found.err.startswith("error: no error-aware scores: ")
    assert "labelled supports, expected 30: label more" in found.err
    assert not list((tmp_path / "results").glob("*/*/*/error_aware.json"))


def test_a_judge_that_says_nothing_is_refused(noisy, labelled, tmp_path):
    path = labelled("--unit", "pair", "--n", "200")
    found = noisy("--labelled-pairs", path, judge="noise:NoUse")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "the judge's Youden index on the labelled pairs is" in found.err


def test_mistakes_are_refused_before_anything_is_judged(cli, noisy, labelled, tmp_path):
    path = labelled("--unit", "pair", "--n", "60")
    gold = cli("--corpus", "demo", "--labelled-pairs", path)
    assert (gold.code, gold.out) == (2, "")
    assert "--labelled-pairs measures a judge's errors, and gold labels have no judge" in gold.err
    for flags, message in (
        (["--labelled-pairs", tmp_path / "none.csv"], "--labelled-pairs"),
        (["--labelled-pairs", path, "--until", "judge"], "--labelled-pairs corrects scores: leave out --until judge"),
        (["--labelled-pairs", path, "--qrels", QRELS, "--perspectives", "relevant"], "leave out --perspectives"),
    ):
        found = noisy(*flags)
        assert (found.code, found.out) == (2, "")
        assert found.err.count("\n") == 1
        assert message in found.err
    for column in ("rank", "inclusion_probability"):  # without ranks it is no sample of a run
        rows = list(csv.DictReader(path.open()))
        copy = path.with_name(f"without_{column}.csv")
        with copy.open("w", newline="") as file:
            writer = csv.DictWriter(file, [name for name in rows[0] if name != column], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        if column == "inclusion_probability":
            found = noisy("--labelled-pairs", copy, "--dry-run")
            assert (found.code, found.out) == (2, "")
            assert f"{copy}:2: a rank, so this is a sample of a run, but no inclusion_probability" in found.err
        else:
            assert noisy("--labelled-pairs", copy, "--dry-run").code == 0
    planned = noisy("--labelled-pairs", path, "--dry-run").out
    labelled_pairs = read_pairs(path)
    supports = sum(bool(each.label) for each in labelled_pairs)
    # The run of the fixture has judged the top 5, from which the pairs were drawn.
    assert f"60 of 60 pairs have labels ({supports} supports), 0 of them to judge" in planned
    path.write_text("question,document\nWhy?,Because.\n")
    found = noisy("--labelled-pairs", path)
    assert (found.code, found.out) == (2, "")
    assert "people.csv" in found.err
