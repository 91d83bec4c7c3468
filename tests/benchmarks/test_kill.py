"""A run killed with SIGKILL at random moments: it goes on, repeats nothing that was published, and ends the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpora.fingerprint import digest
from evaluator.judgements import JudgementStore, judgement_key
from tests.benchmarks.conftest import Outcome

PLUGINS = '''
"""A judge and a retriever that write down everything that they are asked, and take their time."""
import os, time
from pathlib import Path
from corpora.types import Hit
from evaluator.types import Judgement

LOG = Path(os.environ["ASKED"])

def note(kind, text):
    with LOG.open("a") as log:
        log.write(f"{kind} {text}\\n")

class Slow:
    def index(self, corpus):
        self.ids = [passage.passage_id for passage in corpus]
        return self
    def search(self, queries, k):
        note("search", len(queries))
        time.sleep(0.3)
        return [tuple(Hit(i, float(-n)) for n, i in enumerate(self.ids[:k])) for _ in queries]

class Backwards:
    def rerank(self, pools):
        note("rerank", len(pools))
        time.sleep(0.3)
        turned = [list(enumerate(pool.ranking))[::-1] for pool in pools]
        return [tuple(Hit(hit.passage_id, float(n)) for n, hit in ranking) for ranking in turned]

class Careful:
    fingerprint = "careful-1"
    def render(self, pair):
        return f"{pair.passage.text} | {pair.perspective.text}"
    def judge(self, pairs):
        for i, pair in enumerate(pairs):
            note("judge", self.render(pair))
            time.sleep(float(os.environ["PAUSE"]))
            number = sum(map(ord, self.render(pair)))
            answer = Judgement("ok", (number % 101) / 100, "?", 0.0)
            yield i, Judgement("unparsed", None) if number % 50 == 0 else answer
'''
QUESTIONS, PASSAGES, PERSPECTIVES = 30, 40, 3
FINAL = ("scores.json", "per_question.csv", "run.trec.gz", "labels.parquet")


def write(folder: Path) -> list[str]:
    task = folder / "task"
    task.mkdir()
    (folder / "killed_plugins.py").write_text(PLUGINS)
    questions = [
        {
            "question_id": f"q{i}",
            "question": f"question {i}",
            "perspectives": [{"perspective_id": f"q{i}.{j}", "text": f"view {i} {j}"} for j in range(PERSPECTIVES)],
        }
        for i in range(QUESTIONS)
    ]
    passages = [{"_id": f"p{i:03d}", "title": "", "text": f"passage number {i}"} for i in range(PASSAGES)]
    for name, rows in (("questions", questions), ("corpus", passages)):
        (task / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = "--retriever killed_plugins:Slow --reranker killed_plugins:Backwards --judge killed_plugins:Careful"
    own += " --metrics MRecall@5 Precision@10 Redundancy@40 CoverageDepth"  # Redundancy wants every label
    return [sys.executable, "-m", "benchmarks.run", "--task", str(task), *own.split()]


def environment(folder: Path, name: str) -> dict[str, str]:
    return os.environ | {
        "ASKED": str(folder / f"{name}.log"),
        "PAUSE": "0.0001" if name == "whole" else "0.002",
        "PYTHONPATH": str(folder),
        "RETRIEVAL_DIVERSITY_CACHE": str(folder / f"{name}-cache"),
    }


def start(folder: Path, command: list[str], name: str) -> subprocess.Popen[bytes]:
    own = [*command, "--output", str(folder / f"{name}-results")]
    return subprocess.Popen(own, env=environment(folder, name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def asked(folder: Path, name: str) -> list[str]:
    log = folder / f"{name}.log"
    return log.read_text().splitlines() if log.exists() else []


def published(folder: Path, name: str, lines: list[str]) -> set[str]:
    """The judge's inputs among these lines of the log that the store holds."""
    inputs = sorted({line.removeprefix("judge ") for line in lines if line.startswith("judge ")})
    store = JudgementStore(folder / f"{name}-cache" / "judgements")
    judge = digest({"class": "killed_plugins:Careful", "version": 1, "fingerprint": "careful-1"})
    found = store.get_many([judgement_key(judge, each) for each in inputs])
    return {each for each, judgement in zip(inputs, found, strict=True) if judgement is not None}


@pytest.mark.slow
def test_a_run_killed_twenty_times_repeats_nothing_published_and_ends_the_same(tmp_path: Path) -> None:
    command, moment = write(tmp_path), random.Random(20260)
    whole = start(tmp_path, command, "whole")
    assert whole.wait(120) == 0, whole.stderr.read().decode()
    pairs = QUESTIONS * PASSAGES * PERSPECTIVES
    assert len([line for line in asked(tmp_path, "whole") if line.startswith("judge ")]) == pairs

    kills, ended, sizes = 0, False, set()
    while kills < 20 or not ended:
        before = asked(tmp_path, "killed")
        stored = published(tmp_path, "killed", before) if before else set()
        sizes.add(len(stored))
        staged = {stage: (tmp_path / "killed-cache" / stage).is_dir() and any(
            not path.name.startswith(".") for path in (tmp_path / "killed-cache" / stage).iterdir()
        ) for stage in ("search", "rerank")}  # fmt: skip
        process = start(tmp_path, command, "killed")
        if kills < 20:
            # Most kills fall into the work, wherever it is then; some into the first moments, some into the end.
            goal, patience = len(before) + moment.randrange(700), time.monotonic() + 20
            while process.poll() is None and len(asked(tmp_path, "killed")) < goal and time.monotonic() < patience:
                time.sleep(0.005)
            time.sleep(moment.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            assert process.wait(120) == 0, process.stderr.read().decode()
            ended = True
        process.stderr.close()
        now = [line.partition(" ") for line in asked(tmp_path, "killed")[len(before) :]]
        again = {text for kind, _, text in now if kind == "judge"} & stored
        assert not again, f"judged again after kill {kills}: {sorted(again)[:3]}"
        for stage, done in staged.items():
            assert not (done and any(kind == stage for kind, _, _ in now)), f"{stage} made again"
    assert len(sizes) > 4, f"the kills hit too few different states: {sorted(sizes)}"
    (one,) = (tmp_path / "whole-results").glob("*/*/*")
    (two,) = (tmp_path / "killed-results").glob("*/*/*")
    assert one.relative_to(tmp_path / "whole-results") == two.relative_to(tmp_path / "killed-results")
    for name in FINAL:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    leftovers = [
        path for path in two.iterdir() if path.name not in {*FINAL, "provenance.json", "run.trec.gz.ir_metadata.yml"}
    ]
    assert all(path.name.startswith(".tmp-") for path in leftovers), leftovers


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_judged_and_says_so(tmp_path: Path, signal_: signal.Signals) -> None:
    process = start(tmp_path, write(tmp_path), "stopped")
    while len(asked(tmp_path, "stopped")) < 600:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.02)
    process.send_signal(signal_)
    assert process.wait(30) == 130
    assert process.stderr.read().decode().strip() == "interrupted: the same command goes on where this one stopped"
    process.stderr.close()
    lines = asked(tmp_path, "stopped")
    judged = len([line for line in lines if line.startswith("judge ")])
    # What came back before the signal is all there; the one judgement under way may be missing.
    assert len(published(tmp_path, "stopped", lines)) >= judged - 1


def test_stored_judgements_alone_score_a_run_and_show_the_holes(tmp_path: Path, cli, monkeypatch) -> None:
    command = write(tmp_path)[3:]
    monkeypatch.setenv("ASKED", str(tmp_path / "log"))
    monkeypatch.setenv("PAUSE", "0")
    monkeypatch.syspath_prepend(tmp_path)
    command = command[: command.index("--metrics")]
    options = [*command, "--depth", "4", "--k", "2", "--metrics", "Judged@4", "Precision@4", "--json"]
    empty: Outcome = cli(*options, "--stored-only")
    assert empty.mean("Judged@4") == 0
    assert empty.scores["scores"]["Precision@4"]["upper"] == 1
    assert cli(*options, "--limit", "10").code == 0  # judges the first ten questions
    half: Outcome = cli(*options, "--stored-only")
    assert 0.3 < half.mean("Judged@4") <= 1 / 3  # ten of thirty questions, less passages whose labels are all unparsed
    assert "not one of 360 labels is known" in empty.err
    assert cli(*options, "--stored-only").scores == half.scores
