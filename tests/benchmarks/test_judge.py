"""``python -m benchmarks.judge``: the union of several runs, each pair once, in parts, killed and gone on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.judge import main
from tests.benchmarks.conftest import Outcome, write_task

JUDGES = """
import os, time
from evaluator.types import Judgement
class Letters:
    def __init__(self, share: float = 0.5, names: tuple[str, ...] = (), pause: float = 0.0):
        self.share, self.names, self.pause = share, names, pause
    cost_usd_per_pair = 0.25
    runtime_args = ("pause",)
    fingerprint = "letters-1"
    def render(self, pair):
        return f"{pair.passage.passage_id}|{pair.passage.text}|{pair.perspective.text}"
    def judge(self, pairs):
        with open(os.environ["ASKED"], "a") as log:
            log.write("call\\n")
            for i, pair in enumerate(pairs):
                log.write(self.render(pair) + "\\n")
                log.flush()
                time.sleep(self.pause)
                number = sum(map(ord, self.render(pair)))
                yield i, Judgement("ok", float(number % 4 == 0), cost_usd=0.25)
class Named(Letters):
    fingerprint = None
class Other(Letters):
    fingerprint = "other"
class OfFile(Letters):
    fingerprint = None
    from pathlib import Path
    def __init__(self, path: Path | None = None):
        super().__init__()
        self.path = path
"""
QUESTIONS, PASSAGES, PERSPECTIVES, DEEP = 8, 30, 3, 20


@pytest.fixture
def judges(tmp_path, monkeypatch):
    """A judge that writes down its inputs; the function gives those since the last call, calls left out."""
    (tmp_path / "letters.py").write_text(JUDGES)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("letters", None)
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))

    def lines() -> list[str]:
        path = tmp_path / "asked"
        found = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return [line for line in found if line != "call"]

    return lines


@pytest.fixture
def big(tmp_path) -> Path:
    """A task whose runs share passages over questions."""
    folder = tmp_path / "big"
    folder.mkdir()
    rows = [
        {
            "question_id": f"q{i}",
            "question": f"question {i}",
            "perspectives": [{"perspective_id": f"{i}.{j}", "text": f"view {i} {j}"} for j in range(PERSPECTIVES)],
        }
        for i in range(QUESTIONS)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    passages = [{"_id": f"p{i}", "title": "", "text": f"passage number {i}"} for i in range(PASSAGES)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    return folder


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """Three runs of that task, 20 passages deep."""
    paths = []
    for seed in range(3):
        draw, lines = random.Random(seed), []
        for i in range(QUESTIONS):
            ids = draw.sample(range(PASSAGES), DEEP)
            lines += [f"q{i} Q0 p{n} {rank} {99 - rank} r{seed}" for rank, n in enumerate(ids, 1)]
        paths.append(tmp_path / f"run{seed}.trec")
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


@pytest.fixture
def judge(tmp_path, capsys):
    """Calls ``python -m benchmarks.judge`` in this process, with the cache of ``cli``."""

    def call(*arguments: object) -> Outcome:
        own = [] if "--cache" in arguments else ["--cache", tmp_path / "cache"]
        capsys.readouterr()
        code = main([str(argument) for argument in [*arguments, *own]])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


LETTERS = ("--judge", "letters:Letters")
FULL = ("--metrics", "Precision@10")
LAZY = ("--metrics", "Precision@2", "CoverageDepth")


def ranked(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        found.setdefault(line.split()[0], []).append(line.split()[2])
    return found


def needed(paths: list[Path], full: int, reach: int) -> tuple[int, set[str]]:
    """Pairs of all runs, and the different inputs among them, worked out rank by rank."""
    pairs, inputs = 0, set()
    for path in paths:
        for question, ids in ranked(path).items():
            for j in range(PERSPECTIVES):
                covered = False
                for rank, passage in enumerate(ids[:reach]):
                    text = f"{passage}|passage number {passage[1:]}|view {question[1:]} {j}"
                    if rank < full or not covered:
                        pairs += 1
                        inputs.add(text)
                    covered = covered or sum(map(ord, text)) % 4 == 0
    return pairs, inputs


def test_the_union_of_runs_is_judged_once_and_every_run_finds_it(cli, judge, judges, big, runs):
    pairs, inputs = needed(runs, 10, 10)
    assert pairs == 3 * QUESTIONS * 10 * PERSPECTIVES
    assert len(inputs) < pairs
    planned = judge(*runs, "--task", big, *LETTERS, *FULL, "--dry-run")
    told = f"judge letters:Letters: 3 runs: {pairs} pairs, {len(inputs)} different; "
    assert planned.out == f"{told}0 stored, {len(inputs)} to judge, about {len(inputs) / 4:.2f} USD\n"
    assert judges() == []
    done = judge(*runs, "--task", big, *LETTERS, *FULL)
    assert (done.code, done.err) == (0, "")
    assert (
        f"{pairs} pairs, {len(inputs)} different; 0 reused, {len(inputs)} judged, {len(inputs) / 4:.2f} USD" in done.out
    )
    asked = judges()
    assert len(asked) == len(set(asked))
    assert set(asked) == inputs
    # Every passage came once: all pairs of it in a row, over runs and questions.
    passages = [line.split("|")[0] for line in asked]
    assert len([i for i in range(len(passages)) if passages[i] != passages[i - 1]]) == len(set(passages))
    for path in runs:
        outcome = cli("--task", big, "--run", path, *LETTERS, *FULL, "--json")
        assert outcome.code == 0, outcome.err
        assert outcome.scores["labels"]["unjudged"] == 0
    assert judges() == []
    again = judge(*runs, "--task", big, *LETTERS, *FULL)
    assert f"{len(inputs)} reused, 0 judged\n" in again.out
    more = judge(*runs, "--task", big, *LETTERS, "--metrics", "Precision@12")
    assert f"{len(inputs)} reused" in more.out


def test_runs_are_judged_lazily_together(cli, judge, judges, big, runs):
    pairs, inputs = needed(runs, 2, DEEP)
    done = judge(*runs, "--task", big, *LETTERS, *LAZY)
    asked = judges()
    assert inputs <= set(asked)
    assert len(asked) == len(set(asked))
    ahead = len(asked) - len(inputs)
    told = f"{pairs} pairs, {len(inputs)} different; 0 reused, {len(inputs)} judged"
    assert told in done.out
    assert (f" and {ahead} ahead of need" in done.out) == bool(ahead)
    for path in runs:
        assert cli("--task", big, "--run", path, *LETTERS, *LAZY).code == 0
    assert judges() == [], "however the rounds of one run alone would have gone"


@pytest.mark.parametrize("metrics, full, reach", [(FULL, 10, 10), (LAZY, 2, DEEP)])
def test_parts_judge_what_the_whole_needs_and_nothing_twice(cli, judge, judges, big, runs, metrics, full, reach):
    _, inputs = needed(runs, full, reach)
    parts = []
    for i in (3, 1, 2):
        done = judge(*runs, "--task", big, *LETTERS, *metrics, "--shard", f"{i}/3")
        assert f"3 runs, part {i}/3: " in done.out
        parts.append(set(judges()))
    assert inputs <= set.union(*parts)
    assert sum(map(len, parts)) == len(set.union(*parts))
    by = [{line.split("|")[0] if metrics is FULL else line.split()[-2] for line in part} for part in parts]
    assert sum(map(len, by)) == len(set.union(*by)), "parts share no passage, or no question"
    assert "0 judged" in judge(*runs, "--task", big, *LETTERS, *metrics).out
    for path in runs:
        assert cli("--task", big, "--run", path, *LETTERS, *metrics).code == 0
    assert judges() == []


def test_a_part_of_one_run_is_judged_alike_by_run_until_judge(cli, judge, judges, big, runs):
    for metrics in (FULL, LAZY):
        options = ("--task", big, *LETTERS, *metrics, "--shard", "2/3")
        judge(runs[0], *options)
        one = sorted(judges())
        assert cli("--run", runs[0], *options, "--until", "judge", "--cache", big / "other").code == 0
        assert sorted(judges()) == one != []


def test_results_say_what_they_are_of(cli, judge, judges, big, runs, tmp_path):
    """A result names its judge with arguments; task and corpus in folders have to be given again."""
    for path in runs[:2]:
        assert cli("--task", big, "--run", path, *LETTERS, "--metrics", "Precision@1").code == 0
    folders = [path.parent for path in (tmp_path / "results").glob("*/*/*/scores.json")]
    assert len(folders) == 2
    refused = judge(*folders)
    assert refused.code == 2
    assert refused.err.endswith("its task 'big' is a folder or a class of yours: give --task\n")
    judges()
    done = judge(*folders, runs[2], "--task", big, *FULL)
    assert done.code == 0, done.err
    asked = judges()
    pairs, inputs = needed(runs, 10, 10)
    first = needed(runs[:2], 1, 1)[1]
    assert set(asked) == inputs - first
    assert f"3 runs: {pairs} pairs, {len(inputs)} different; {len(first)} reused" in done.out


def test_a_result_of_a_built_in_task_needs_no_flag(cli, judge, judges, tmp_path):
    own = ("--judge", "letters:Named", "--judge-args", "share=0.25", "names=a,b", "pause=0.001", "--limit", 3)
    assert cli("--corpus", "demo", *own, "--depth", 20, "--metrics", "Precision@1").code == 0
    (folder,) = [path.parent for path in (tmp_path / "results").glob("*/*/*/scores.json")]
    judges()
    done = judge(folder, "--metrics", "Precision@2", "MRecall@2")
    assert done.code == 0, done.err
    new = judges()
    assert cli("--corpus", "demo", *own, "--depth", 20, "--metrics", "Precision@2").code == 0
    assert judges() == []
    assert len({line.split("|")[0] for line in new}) <= 6, "three questions, rank 2"
    deeper = judge(folder, "--metrics", "Precision@21")
    assert deeper.err == "error: Precision@21 looks deeper than --depth 20: raise --depth\n"
    scores = json.loads((folder / "scores.json").read_text())
    for part, key, value, words in (
        ("task", "fingerprint", "0", "other questions or qrels than those of task 'demo': give --task"),
        ("corpus", "fingerprint", "0", "its passages are not those of corpus 'demo': give --corpus"),
        ("judge", "source", "0", "judge 'letters:Named' is not as it was: give --judge and --judge-args"),
        ("judge", "name", "gold", "its labels are gold: give --judge"),
    ):
        changed = {**scores, "config": {**scores["config"], part: {**scores["config"][part], key: value}}}
        (folder / "scores.json").write_text(json.dumps(changed))
        outcome = judge(folder)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.endswith(words + "\n")
        assert outcome.err.count("\n") == 1
    (folder / "scores.json").write_text(json.dumps({**scores, "config": {}}))
    assert "scores.json is damaged" in judge(folder).err


def test_a_judge_of_a_file_has_to_be_given_again(cli, judge, judges, tmp_path):
    (tmp_path / "prompt.txt").write_text("Does it?")
    own = ("--judge", "letters:OfFile", "--judge-args", f"path={tmp_path / 'prompt.txt'}")
    assert cli("--corpus", "demo", *own, "--limit", 2, "--metrics", "Precision@1").code == 0
    (folder,) = [path.parent for path in (tmp_path / "results").glob("*/*/*/scores.json")]
    assert "'letters:OfFile' is not as it was" in judge(folder).err
    judges()
    assert "0 judged" in judge(folder, *own, "--metrics", "Precision@1").out
    assert "0 judged" in judge(folder, *own[2:], "--metrics", "Precision@1").out


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "required: RUN"),
        (["RUNS", "--shard", "4/3"], "--shard 4/3"),
        (["RUNS", "--k", "five"], "five"),
        (["RUNS", "--task", "TASK"], "give --judge"),
        (["RUNS", "--task", "TASK", "--judge", "gold"], "--judge gold"),
        (["RUNS", "--task", "TASK", "--judge", "letters:Nobody"], "Nobody"),
        (["RUNS", "--judge", "letters:Letters"], "no perspectives of its own"),
        (["nowhere.trec", "--task", "TASK", "--judge", "letters:Letters"], "RUN nowhere.trec: there is no such file"),
        (["TASK", "--task", "TASK", "--judge", "letters:Letters"], "no finished result"),
        (["RUNS", "--task", "TASK", "--judge", "letters:Letters", "--metrics", "Precision@500"], "--depth 100"),
        (["RUNS", "--task", "TASK", "--judge", "letters:Letters", "--metrics", "alpha_nDCG@5"], "gold labels"),
        (["RUNS", "--task", "TASK", "--retriever", "bm25"], "--retriever"),
    ],
)
def test_a_mistake_ends_in_one_line_and_exit_code_2(judge, judges, big, runs, arguments, words):
    outcome = judge(*({"RUNS": runs[0], "TASK": big}.get(each, each) for each in arguments))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err


def test_results_with_different_judges_are_refused(cli, judge, judges, tmp_path):
    for name in ("Letters", "Other"):
        own = ("--judge", f"letters:{name}", "--limit", 2)
        assert cli("--corpus", "demo", *own, "--metrics", "Precision@1").code == 0
    folders = [path.parent for path in (tmp_path / "results").glob("*/*/*/scores.json")]
    outcome = judge(*folders)
    assert outcome.err == "error: 2 runs have 2 different judges: give --judge, or judge them apart\n"
    assert judge(*folders, *LETTERS, "--metrics", "Precision@1").code == 0


def test_a_run_that_carries_its_texts_is_judged_by_these(cli, judge, judges, tmp_path):
    task = write_task(tmp_path / "mini")
    assert cli("--task", task, "--export", tmp_path / "out.jsonl", "--metrics", "Precision@1").code == 0
    assert judge(tmp_path / "out.jsonl", *LETTERS, "--metrics", "Precision@2").code == 0
    assert judges() != []
    assert cli("--run", tmp_path / "out.jsonl", *LETTERS, "--metrics", "Precision@2").code == 0
    assert judges() == []


def start(folder: Path, arguments: list[object]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.judge", *map(str, arguments)]
    environment = {
        **os.environ,
        "ASKED": str(folder / "asked"),
        "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).resolve().parents[2])]),
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_killed_and_interrupted_it_goes_on_and_repeats_nothing_published(judges, big, runs, tmp_path):
    from evaluator.judgements import JudgementStore

    cache = tmp_path / "cache"
    arguments = [*runs, "--task", big, *LETTERS, "--judge-args", "pause=0.003", *LAZY, "--cache", cache]
    _, inputs = needed(runs, 2, DEEP)
    stored, asked = 0, []
    for signal_ in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, None):
        process = start(tmp_path, arguments)
        log = tmp_path / "asked"
        while signal_ is not None and process.poll() is None:
            if log.exists() and len(log.read_text().splitlines()) > 60:
                process.send_signal(signal_)
                break
            time.sleep(0.01)
        out, err = process.communicate(timeout=120)
        if signal_ in (signal.SIGINT, signal.SIGTERM) and process.returncode != 0:
            assert process.returncode == 130
            assert err.decode().strip() == "interrupted: the same command goes on where this one stopped"
        asked += judges()
        store = JudgementStore(cache / "judgements")
        assert len(store) >= stored
        if signal_ in (signal.SIGINT, signal.SIGTERM):
            assert len(store) > stored, "an interrupt loses nothing that was answered"
        stored = len(store)
    assert process.returncode == 0, err.decode()
    assert inputs <= set(asked)
    assert stored == len(set(asked))
    assert "reused" in out.decode()


def test_two_processes_at_once_end_with_what_one_would_have(judges, big, runs, tmp_path):
    from evaluator.judgements import JudgementStore

    arguments = [*runs, "--task", big, *LETTERS, *LAZY, "--cache", tmp_path / "cache"]
    processes = [start(tmp_path, arguments) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
    assert len(JudgementStore(tmp_path / "cache" / "judgements")) == len(set(judges()))


def test_help_needs_no_heavy_module():
    for name in ("judge", "sample"):
        code = f"import sys; from benchmarks.{name} import main\n"
        code += "try: main(['--help'])\nexcept SystemExit: pass\n"
        code += "print([m for m in ('numpy', 'pyarrow', 'bm25s', 'tqdm', 'torch') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"
        assert "--corpus" in done.stdout


@pytest.mark.data
def test_perspectrum_is_judged_as_lazily_as_can_be(data, tmp_path):
    """Figures of docs/judging.md; the qrels stand in for the judge."""
    import numpy as np

    from benchmarks.config import RunConfig
    from benchmarks.pipeline import passages, retrieved
    from benchmarks.resolve import resolve
    from evaluator.depths import Depths
    from evaluator.judgements import JudgementStore
    from evaluator.labels import gold_labels, judged_labels, matrices
    from evaluator.types import Judgement

    experiment = resolve(RunConfig(task=str(data / "perspectrum"), split="dev", judge="gold"))
    run, questions, qrels = retrieved(experiment), experiment.scored, experiment.qrels

    class Gold:
        def render(self, pair):
            return f"{pair.question.question_id} {pair.perspective.perspective_id} {pair.passage.passage_id}"

        def judge(self, pairs):
            for i, pair in enumerate(pairs):
                links = qrels[pair.question.question_id].get(pair.perspective.perspective_id, {})
                yield i, Judgement("ok", float(links.get(pair.passage.passage_id, 0) > 0))

    gold = matrices(gold_labels(run, questions, qrels, 100), run, questions)
    supports = [matrix[:, j] == 1 for matrix in gold.values() for j in range(matrix.shape[1])]
    least = sum(int(np.argmax(each)) + 1 if each.any() else len(each) for each in supports)
    store = JudgementStore(tmp_path)
    _, counts = judged_labels(run, questions, Depths(0, 100), passages(experiment), Gold(), "gold", store)
    assert counts.needed == least == 10_831
    assert sum(map(len, supports)) == 37_700
    assert counts.ahead == counts.judged - least <= 0.02 * least


def test_the_folder_of_a_result_that_was_moved_is_still_known(cli, judge, judges, tmp_path):
    assert cli("--corpus", "demo", *LETTERS, "--limit", 2, "--metrics", "Precision@1").code == 0
    (folder,) = [path.parent for path in (tmp_path / "results").glob("*/*/*/scores.json")]
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert "0 judged" in judge(tmp_path / "elsewhere", "--metrics", "Precision@1").out
