"""``python -m benchmarks.sample``: what people get to label, and that the inclusion probabilities are right."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sample import draw_pairs, draw_questions, main
from corpora.lines import InputError
from corpora.types import Perspective, Question
from evaluator.metrics import parse
from evaluator.pairs import read_pairs, write_pairs
from tests.benchmarks.conftest import PASSAGES, Outcome, write_task


@pytest.fixture
def sample(tmp_path, capsys):
    """Calls ``python -m benchmarks.sample`` in this process."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in [*arguments, "--cache", tmp_path / "cache"]])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def result(cli, tmp_path) -> Path:
    """A result of the demo collection."""
    assert cli("--corpus", "demo", "--depth", 20).code == 0
    (path,) = (tmp_path / "results").glob("*/*/*/scores.json")
    return path.parent


def test_pairs_are_drawn_with_texts_and_without_labels(sample, result, tmp_path):
    out = tmp_path / "sample.csv"
    outcome = sample(result, "--n", 60, "--output", out)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(f"{out}: 60 pairs of the top 5 of {result}\n")
    pairs = read_pairs(out, unlabelled=True)
    assert (
        len(
            {(p.pair.question.question_id, p.pair.perspective.perspective_id, p.pair.passage.passage_id) for p in pairs}
        )
        == 60
    )
    assert all(each.label is None for each in pairs)
    assert {each.rank for each in pairs} <= {1, 2, 3, 4, 5}
    # Each pair is one of the run, at its rank, with the text of the corpus.
    from benchmarks.results import read_final_run
    from corpora import CORPORA

    run, corpus = read_final_run(result), CORPORA.create("demo")
    for each in pairs:
        hit = run[each.pair.question.question_id][each.rank - 1]
        assert hit.passage_id == each.pair.passage.passage_id
        (passage,) = corpus.get([hit.passage_id])
        assert (passage.text, passage.title) == (each.pair.passage.text, each.pair.passage.title)
    # Nothing but the two columns that the estimates need tells the rank or the judgement.
    header = next(csv.reader(out.open()))
    assert [name for name in header if "label" in name or "prob" in name or "rank" in name or "judg" in name] == [
        "label", "inclusion_probability", "rank",
    ]  # fmt: skip
    ranks = [each.rank for each in pairs]
    assert ranks != sorted(ranks)
    questions = [each.pair.question.question_id for each in pairs]
    assert questions != sorted(questions, key=questions.index)


def test_the_weights_of_a_sample_add_up_to_the_pairs_there_are(sample, result, tmp_path):
    out = tmp_path / "s.tsv"
    assert sample(result, "--n", 50, "--output", out, "--k", 3, "--seed", 4).code == 0
    from benchmarks.results import read_labels

    table = read_labels(result)
    m = Counter(table["question_id"].to_pylist())
    pairs = 3 * sum(count // 20 for count in m.values())
    assert math.fsum(1 / each.inclusion_probability for each in read_pairs(out, unlabelled=True)) == pytest.approx(
        pairs
    )


def test_whole_questions_are_drawn(sample, result, tmp_path):
    out = tmp_path / "questions.jsonl"
    outcome = sample(result, "--unit", "question", "--n", 9, "--k", 5, "--output", out)
    assert outcome.code == 0, outcome.err
    pairs = read_pairs(out, unlabelled=True)
    by: dict[str, list] = {}
    for each in pairs:
        by.setdefault(each.pair.question.question_id, []).append(each)
    assert len(by) == 9
    for found in by.values():
        assert len({each.inclusion_probability for each in found}) == 1
        cells = {(each.rank, each.pair.perspective.perspective_id) for each in found}
        assert len(cells) == len(found) == 5 * len({each.pair.perspective.perspective_id for each in found})
    # The demo's headline is a macro mean over three groups of seven questions: three of each.
    assert {each.inclusion_probability for each in pairs} == {3 / 7}
    assert outcome.out.count("3 of 7 questions of group") == 3
    assert "as such from 30 questions on: of these 9 they take only how often the judge errs" in outcome.out
    assert "were asked for" not in outcome.out


def test_fewer_questions_than_asked_for_are_told(sample, result, tmp_path):
    outcome = sample(result, "--unit", "question", "--n", 50, "--output", tmp_path / "s.csv")
    assert outcome.code == 0, outcome.err
    assert "50 were asked for: these 21 are all there are" in outcome.out
    assert "as such from 30 questions on: of these 21 they" in outcome.out


def test_thirty_questions_need_no_word():
    questions, judged, _ = population()
    _, told = draw_questions(questions, judged, 30, 5, np.random.default_rng(0), by_group=False)
    assert not any("error-aware" in line or "asked for" in line for line in told)


def test_a_seed_is_a_sample(sample, result, tmp_path):
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        assert sample(result, "--n", 40, "--output", path, "--seed", seed).code == 0
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()


def test_labels_come_back_with_their_probabilities(sample, result, tmp_path):
    out = tmp_path / "sample.csv"
    sample(result, "--n", 40, "--output", out)
    before = read_pairs(out, unlabelled=True)
    rows = list(csv.DictReader(out.open()))
    for i, row in enumerate(rows):
        row["label"] = "yes" if i % 3 == 0 else "No"
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows[::-1])  # people sort their tables
    after = read_pairs(out)[::-1]
    assert [each.pair for each in after] == [each.pair for each in before]
    assert [each.inclusion_probability for each in after] == [each.inclusion_probability for each in before]
    assert [each.rank for each in after] == [each.rank for each in before]
    assert [each.label for each in after] == [i % 3 == 0 for i in range(40)]
    write_pairs(tmp_path / "again.csv", after)
    assert read_pairs(tmp_path / "again.csv") == after


def test_a_task_in_a_folder_has_to_be_given_again(cli, sample, task, tmp_path):
    assert cli("--task", task).code == 0
    (path,) = (tmp_path / "results").glob("*/*/*/scores.json")
    out = tmp_path / "s.csv"
    refused = sample(path.parent, "--output", out)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "give --task" in refused.err
    assert not out.exists()
    assert sample(path.parent, "--output", out, "--task", task).code == 0
    found = {each.pair.passage.passage_id: each.pair.passage.text for each in read_pairs(out, unlabelled=True)}
    assert found.items() <= PASSAGES.items()
    demo = sample(path.parent, "--output", tmp_path / "t.csv", "--task", "demo")
    assert "other questions or qrels than those of task 'demo'" in demo.err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--n", "0"], "--n 0"),
        (["--k", "0"], "--k 0"),
        (["--k", "21"], "--k 21: the result goes down to rank 20 only"),
        (["--seed", "-1"], "--seed -1"),
        (["--unit", "passage"], "passage"),
        (["--n", "3"], "--n 3: 3 are too few for"),
        (["--n", "5", "--unit", "question"], "--n 5: 5 are too few for 3 strata: expected at least 6"),
        (["--output", "THERE"], "it is there"),
        (["--output", "sample.xlsx"], ".csv"),
        (["--output", "sample.xlsx", "--n", "0"], "ends in .csv, .tsv, .jsonl"),
        (["--judge", "gold"], "--judge"),
    ],
)
def test_a_mistake_ends_in_one_line_and_exit_code_2(sample, result, tmp_path, arguments, words):
    (tmp_path / "there.csv").write_text("labels of days of work")
    own = [tmp_path / "there.csv" if each == "THERE" else each for each in arguments]
    own += [] if "--output" in own else ["--output", tmp_path / "s.csv"]
    outcome = sample(result, *own)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err
    assert (tmp_path / "there.csv").read_text() == "labels of days of work"


def test_a_folder_with_the_name_of_a_built_in_task_has_to_be_given_again(cli, sample, tmp_path, monkeypatch):
    task = write_task(tmp_path / "perspectrum")
    assert cli("--task", task).code == 0
    (path,) = (tmp_path / "results").glob("*/*/*/provenance.json")
    out = tmp_path / "s.csv"

    def made_by(*command: str) -> None:
        path.write_text(json.dumps({"history": [{"command": ["run.py", *command]}]}))

    def no_download(*_: object) -> None:
        raise InputError("downloaded")

    monkeypatch.setattr("benchmarks.perspectrum.fetch", no_download)
    for command in (("--task", str(task)), (f"--task={task}",), ("--task", "./perspectrum")):
        made_by(*command)
        refused = sample(path.parent, "--output", out)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "task 'perspectrum' was made from a folder" in refused.err
        assert "give --task FOLDER" in refused.err
    assert sample(path.parent, "--output", out, "--task", task).code == 0
    for command in (("--task", "perspectrum"), ()):  # nothing speaks for a folder
        made_by(*command)
        with pytest.raises(InputError, match="downloaded"):
            sample(path.parent, "--output", tmp_path / "t.csv")
    path.write_text("damaged")
    with pytest.raises(InputError, match="downloaded"):
        sample(path.parent, "--output", tmp_path / "t.csv")


def test_what_is_no_result_is_refused(sample, result, tmp_path):
    assert "ends in .csv" in sample(tmp_path / "nothing", "--output", tmp_path / "s.xlsx").err
    assert "no finished result" in sample(tmp_path, "--output", tmp_path / "s.csv").err
    (result / "labels.parquet").write_bytes(b"")
    assert "labels.parquet" in sample(result, "--output", tmp_path / "s.csv").err
    (result / "labels.parquet").unlink()
    assert "no finished result" in sample(result, "--output", tmp_path / "s.csv").err


def population(seed: int = 0) -> tuple[list[Question], dict[str, np.ndarray], dict[tuple[str, int, int], int]]:
    """Questions, a judge's labels of their top 5, and the truth, which the judge misses in part."""
    random = np.random.default_rng(seed)
    questions, judged, truth = [], {}, {}
    for n in range(40):
        m = int(random.integers(1, 5))
        name = f"q{n}"
        questions.append(
            Question(name, name, tuple(Perspective(f"{n}.{j}", "view") for j in range(m)), group="ab"[n % 2])
        )
        true = random.random((int(random.integers(0, 6)), m)) < 0.25
        seen = np.where(random.random(true.shape) < 0.85, true, ~true).astype(np.int8)
        seen[random.random(true.shape) < 0.05] = -1
        judged[name] = seen
        truth |= {(name, i, j): int(true[i, j]) for i in range(true.shape[0]) for j in range(m)}
    return questions, judged, truth


SEEDS = 1000


def test_pairs_are_drawn_as_often_as_their_inclusion_probabilities_say():
    questions, judged, truth = population()
    often, said, totals = Counter(), {}, []
    for seed in range(SEEDS):
        places, _ = draw_pairs(questions, judged, 60, 5, np.random.default_rng(seed))
        assert len(places) == 60
        for question, i, j, probability in places:
            often[question.question_id, i, j] += 1
            assert said.setdefault((question.question_id, i, j), probability) == probability
        totals.append(math.fsum(truth[q.question_id, i, j] / p for q, i, j, p in places))
    assert said.keys() == truth.keys(), "every pair can be drawn"
    for place, probability in said.items():
        deviation = math.sqrt(SEEDS * probability * (1 - probability)) or 1
        assert abs(often[place] - SEEDS * probability) < 5 * deviation, place
    # Horvitz and Thompson: the mean of the estimates of the number of supports is the number of supports.
    error = np.std(totals, ddof=1) / math.sqrt(SEEDS)
    assert abs(np.mean(totals) - sum(truth.values())) < 4 * error
    # Unequal: supports by the judge are drawn more often, which is why the probabilities are needed.
    assert max(said.values()) > 2 * min(said.values())
    plain = np.mean([truth[place] for place in often.elements()])
    assert plain > 1.3 * sum(truth.values()) / len(truth)


@pytest.mark.parametrize("by_group", [False, True])
def test_questions_are_drawn_as_often_as_their_inclusion_probabilities_say(by_group):
    questions, judged, truth = population(1)
    metric, groups = parse("MRecall@5"), {q.question_id: q.group for q in questions}
    value = {}
    for q in questions:
        rows = judged[q.question_id].shape
        value[q.question_id] = metric.score(
            np.array([truth[q.question_id, i, j] for i in range(rows[0]) for j in range(rows[1])], np.int8).reshape(
                rows
            )
        )
    often, said, means = Counter(), {}, []
    for seed in range(SEEDS):
        places, _ = draw_questions(questions, judged, 12, 5, np.random.default_rng(seed), by_group=by_group)
        drawn = {question.question_id: probability for question, _, _, probability in places}
        assert len(drawn) == 12
        often.update(drawn.keys())
        said |= drawn
        assert len(places) == sum(judged[name].size for name in drawn)
        means.append(math.fsum(value[name] / probability for name, probability in drawn.items()) / len(questions))
    empty = {name for name, each in judged.items() if not each.size}
    assert empty
    assert said.keys() == judged.keys() - empty
    for name, probability in said.items():
        assert abs(often[name] - SEEDS * probability) < 5 * math.sqrt(SEEDS * probability * (1 - probability)), name
    assert {value[name] for name in empty} == {0.0}
    error = np.std(means, ddof=1) / math.sqrt(SEEDS)
    assert abs(np.mean(means) - np.mean(list(value.values()))) < 4 * error
    if by_group:
        for group in "ab":
            share = sum(groups[name] == group for name in often.elements()) / often.total()
            assert share == 0.5 or abs(share - 0.5) < 0.1


def test_a_lazily_judged_result_is_sampled_too(cli, sample, tmp_path, monkeypatch):
    (tmp_path / "vowels.py").write_text(
        "from evaluator.types import Judgement\n"
        "class Vowels:\n"
        "    def render(self, pair):\n"
        "        return pair.passage.text + pair.perspective.text\n"
        "    def judge(self, pairs):\n"
        "        for i, pair in enumerate(pairs):\n"
        "            yield i, Judgement('ok', float(self.render(pair).count('e') % 3 == 0))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ("--corpus", "demo", "--judge", "vowels:Vowels", "--metrics", "CoverageDepth")
    assert cli(*own).code == 0
    (path,) = (tmp_path / "results").glob("*/*/*/scores.json")
    labels = json.loads(path.read_text())["labels"]
    assert labels["skipped"] > labels["ok"]
    outcome = sample(path.parent, "--n", 80, "--output", tmp_path / "s.csv")
    assert outcome.code == 0, outcome.err
    assert "unknown" in outcome.out, "what was skipped can be drawn as well"


def test_whole_questions_serve_the_estimates_that_need_them(sample, result, tmp_path):
    """The file is what evaluator/question_samples.py reads: the cells that people labelled are those of the run."""
    from benchmarks.reopen import reopen
    from evaluator.question_samples import is_sample, whole_questions

    for unit, n in (("question", 12), ("pair", 30)):
        assert sample(result, "--unit", unit, "--n", n, "--output", tmp_path / f"{unit}.csv").code == 0
    experiment, run = reopen(result, {}, judged=False)
    pairs = read_pairs(tmp_path / "question.csv", unlabelled=True)
    assert is_sample(pairs, run, experiment.questions)
    assert not is_sample(read_pairs(tmp_path / "pair.csv", unlabelled=True), run, experiment.questions)
    gold = experiment.qrels
    labelled = [
        replace(
            each,
            label=gold[each.pair.question.question_id]
            .get(each.pair.perspective.perspective_id, {})
            .get(each.pair.passage.passage_id, 0)
            > 0,
        )
        for each in pairs
    ]
    found = whole_questions(labelled, run, experiment.questions)
    assert (len(found.labels), found.depth) == (12, 5)
    per_question = {row["question_id"]: row for row in csv.DictReader((result / "per_question.csv").open())}
    for name, matrix in found.labels.items():
        for metric in ("MRecall@5", "Precision@5", "StRecall@5"):
            assert parse(metric).score(matrix) == pytest.approx(float(per_question[name][metric]))
