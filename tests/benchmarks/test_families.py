"""Results that say where one model family wrote both the expansions and the gold perspectives."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from benchmarks.families import expander_family
from benchmarks.question_sets import Arguana, Berds, Kialo, OpinionQA
from benchmarks.run import main
from retrievers.expansion import File
from retrievers.llm_expansion import LlmExpander
from tests.benchmarks.conftest import write_task

PLUGINS = '''
from pathlib import Path
from benchmarks.tasks import Folder


class WrittenByGpt(Folder):
    """Half of these gold perspectives were written by a model."""

    gold_families = {"animals": "GPT-4"}

    def __init__(self, path: Path):
        super().__init__(path)


class Same:
    """Writes nothing; its family is no part of what results depend on."""

    fingerprint = "same"

    def __init__(self, family: str | None = None, model: str = "tiny"):
        self.family, self.model = family, model

    def expand(self, queries):
        return [(query,) for query in queries]
'''


@pytest.fixture
def scored(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "family_plugins.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("family_plugins", None)
    write_task(tmp_path / "task", {"group": "set", "name": "mine"})

    def run(*arguments: str, marked: bool = True, split: str = "all"):
        """What is printed, and the only scores.json of this task."""
        task = ["--task", "family_plugins:WrittenByGpt", "--task-args", f"path={tmp_path / 'task'}"]
        given = task if marked else ["--task", str(tmp_path / "task")]
        output = tmp_path / ("marked" if marked else "plain") / split
        given += ["--split", split, "--output", str(output), "--expander", "family_plugins:Same"]
        assert main([*given, *(("--expander-args", *arguments) if arguments else ())]) == 0
        (path,) = output.rglob("scores.json")
        return capsys.readouterr().out, path.read_bytes()

    return run


def test_the_table_and_scores_json_say_so_and_only_then(scored):
    plain_out, plain = scored()
    assert "SAME MODEL FAMILY" not in plain_out
    assert "same_family" not in json.loads(plain)
    out, marked = scored("family=gpt")  # the same folder: nothing else is changed
    (line,) = (line for line in out.splitlines() if line.startswith("SAME MODEL FAMILY: "))
    assert line.partition(": ")[2] == (
        "gpt wrote the expansions, and also the gold perspectives of animals (1 of 3 questions): what the expander "
        "gains there may be overstated."
    )
    found = json.loads(marked)
    assert found.pop("same_family") == {"family": "gpt", "groups": ["animals"], "questions": 1}
    assert found == json.loads(plain)
    assert scored("model=gpt-4o-mini")[1] == marked
    assert scored("family=OpenAI")[1] == marked
    assert scored("model=gpt-4o-mini", "family=claude")[1] == plain
    assert scored("model=mistral-7b")[1] == plain


def test_questions_that_are_not_run_do_not_count(scored):
    assert "same_family" not in json.loads(scored("family=gpt", split="dev")[1])  # none of the animals is in dev
    assert "same_family" not in json.loads(scored("family=gpt", marked=False)[1])


def test_the_family_of_an_expander():
    assert expander_family(LlmExpander("gpt-4-0613")) == "gpt"
    assert expander_family(LlmExpander("default", identity="Qwen2.5-7B")) == "qwen"
    assert expander_family(LlmExpander("gpt-4-0613", family="own")) == "own"
    assert expander_family(LlmExpander("tiny")) is None
    assert expander_family(File(("x.jsonl",))) is None
    assert expander_family(File(("x.jsonl",), family="gpt")) == "gpt"
    assert expander_family(SimpleNamespace()) is None
    assert expander_family(None) is None


def test_only_what_is_documented_of_berds_is_marked():
    assert Berds().gold_families == OpinionQA().gold_families == {"opinionqa": "gpt"}
    assert Arguana().gold_families == Kialo().gold_families == {}
