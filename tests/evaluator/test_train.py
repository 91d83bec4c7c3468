"""The command line of training: one line for every mistake, a real kill, and several processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
import yaml

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
pytest.importorskip("peft", reason="needs the extra 'judge'")
pytest.importorskip("accelerate", reason="needs the extra 'judge'")

from safetensors.torch import load_file

from corpora.artefacts import content_hash
from evaluator.pairs import read_pairs
from evaluator.recipe_file import load_recipe
from evaluator.train import main
from evaluator.training_card import command
from evaluator.training_pairs import put_aside, read_training_pairs
from lm.source import Source
from tests.evaluator import tiny

ROOT = Path(__file__).resolve().parents[2]
TRAIN, DEV = tiny.make_pairs(64, seed=1), tiny.make_pairs(24, seed=2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    tiny.make_mistral(folder / "base")
    tiny.write_recipe(folder, tiny.CAUSAL_RECIPE, folder / "base", epochs=2)
    tiny.write(folder, "pairs.tsv", TRAIN)
    tiny.write(folder, "dev.tsv", DEV)
    return folder


def flags(place: Path, output: Path, *more: str) -> list[str]:
    data = ["--pairs", str(place / "pairs.tsv"), "--dev", str(place / "dev.tsv")]
    return ["--recipe", str(place / "recipe.yaml"), *data, "--output", str(output), "--device", "cpu", *more]


def mistake(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def changed(arguments: list[str], flag: str, value: str) -> list[str]:
    place = arguments.index(flag)
    return [*arguments[: place + 1], value, *arguments[place + 2 :]]


def test_card_log_and_recipe(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The card tells what anyone needs to make it again or to judge with it."""
    assert main(flags(place, tmp_path / "out", "--set", "lora.r=4", "--seed", "3")) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("dev F1 ")
    use = f"--judge mistral --judge-args model={place / 'base'} adapter={tmp_path / 'out'} "
    assert use in out
    card = (tmp_path / "out" / "README.md").read_text()
    for wanted in (
        use,
        "64 pairs learnt",
        "24 to choose the checkpoint",
        content_hash(place / "pairs.tsv"),
        content_hash(place / "dev.tsv"),
        Source(place / "base").identity,
        "Seed 3",
        f"torch {metadata.version('torch')}",
        "1 process on cpu",
    ):
        assert wanted in card
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["library_name"] == "peft"
    again = load_recipe(tmp_path / "out" / "recipe.yaml")
    assert again == load_recipe(place / "recipe.yaml", ["lora.r=4", "seed=3"])
    rows = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4, 6, 8]  # 64 pairs by 16, two evaluations in each of two epochs
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (4, 16, 0.1)
    assert config["base_model_name_or_path"] == str(place / "base")
    assert load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert main(flags(place, tmp_path / "out", "--set", "lora.r=4", "--seed", "3")) == 0  # done
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    "changes, expected",
    [
        ([], "--judge small --judge-args model=m adapter=OUT max_length=64"),
        (["revision=abc"], "--judge small --judge-args model=m revision=abc adapter=OUT max_length=64"),
        (["loss=ce"], "--judge nli --judge-args model=<the folder of --merge> max_length=64"),
        (["lora=none"], "--judge nli --judge-args model=OUT max_length=64"),
        (
            ["texts=['{document}', '{question}']"],
            "lm.cross_encoder.CrossEncoder(model='m', adapter='OUT', cut='first', ",
        ),
    ],
)
def test_how_to_use_a_cross_encoder(tmp_path: Path, changes: list[str], expected: str):
    recipe = load_recipe(tiny.write_recipe(tmp_path, tiny.CROSS_RECIPE, Path("m")), changes)
    assert command(recipe, "OUT").startswith(expected)


def test_flags(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = flags(place, tmp_path / "out")
    for wrong, message in (
        (arguments[2:], "--recipe"),
        ([*arguments, "--sett", "x"], "--sett"),
        (changed(arguments, "--recipe", "berds-mistal"), "did you mean berds-mistral"),
        (changed(arguments, "--pairs", "nowhere.tsv"), "--pairs nowhere.tsv: there is no such file"),
        (changed(arguments, "--dev", str(tmp_path)), "--dev"),
        (changed(arguments, "--device", "tpu"), "--device"),
        ([*arguments, "--set", "epochs"], "expected key=value"),
        ([*arguments, "--set", "epochs=0", "lora.r=big"], "lora.r: 'big': expected a whole number"),
        ([*arguments, "--checkpoint-every", "0"], "expected at least 1"),
        ([*arguments, "--base-model", str(tmp_path)], "is no model folder"),
        ([*arguments, "--base-model", "nobody/nothing"], "nobody/nothing"),
        ([*arguments, "--base-model", str(place / "base"), "--revision", "x"], "has no revisions"),
        ([*arguments, "--set", "lora.target_modules=[q_proj, query]"], "has no query: its modules: "),
        ([*arguments, "--set", "lora.train_also=[head]"], "lora.train_also: MistralForCausalLM has no head"),
        ([*arguments, "--set", "max_length=1000"], "max_length=1000: this model takes at most 128"),
        ([*arguments, "--set", "prompt=nothing"], "unknown prompt 'nothing'"),
        ([*arguments, "--set", "rendering=alpaca"], "rendering=alpaca: expected one of"),
        ([*arguments, "--set", "max_length=9"], "leaves no room for its document"),
        ([*arguments, "--set", "effective_batch=7", "micro_batch=0"], "micro_batch: 0: expected at least 1"),
    ):
        assert message in mistake(capsys, wrong), wrong
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize(
    "row, message",
    [
        ("q\td\tp\tmaybe", "pairs.tsv:3: label 'maybe': expected 0/1, true/false or yes/no"),
        ("q\td\tp\t", "pairs.tsv:3: label is empty"),
        ("q\t\tp\t1", "pairs.tsv:3: document is empty"),
        ("q\td\tp\t0", "has no positive pair: nothing can be learnt"),
    ],
)
def test_pairs(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, message: str):
    (tmp_path / "pairs.tsv").write_text(f"question\tdocument\tperspective\tlabel\nq\td\tp\tNo\n{row}\n")
    arguments = flags(place, tmp_path / "out")
    assert message in mistake(capsys, changed(arguments, "--pairs", str(tmp_path / "pairs.tsv")))


def test_labels_in_words(tmp_path: Path):
    rows = "".join(f"q{i}\td\tp\t{label}\n" for i, label in enumerate(("1", "0", "TRUE", "false", "Yes", "no")))
    (tmp_path / "pairs.tsv").write_text(f"question\tdocument\tperspective\tlabel\n{rows}")
    assert [each.label for each in read_pairs(tmp_path / "pairs.tsv")] == [True, False] * 3


def test_dev_pairs(place: Path, tmp_path: Path):
    """The same pair in both files is refused; a dev file without a positive pair too; shared questions are counted."""
    with pytest.raises(ValueError, match=r"3 of the 3 pairs of --dev .* are in --pairs"):
        read_training_pairs(place / "pairs.tsv", tiny.write(tmp_path, "dev.tsv", TRAIN[:3]), 1, 0)
    negative = [each for each in DEV if not each.label]
    with pytest.raises(ValueError, match=r"has no positive pair: F1 is undefined"):
        read_training_pairs(place / "pairs.tsv", tiny.write(tmp_path, "dev.tsv", negative), 1, 0)
    positive = [each for each in TRAIN if each.label]
    with pytest.raises(ValueError, match=r"has no negative pair: nothing can be learnt"):
        read_training_pairs(tiny.write(tmp_path, "pairs.tsv", positive), place / "dev.tsv", 1, 0)
    assert read_training_pairs(place / "pairs.tsv", place / "dev.tsv", 1, 0).shared_questions == 0
    other = tiny.make_pairs(64, seed=1, length=(10, 12))  # the same questions with other documents
    found = read_training_pairs(place / "pairs.tsv", tiny.write(tmp_path, "dev.tsv", other), 1, 0)
    assert (found.shared_questions, found.put_aside) == (8, False)
    assert list(found.files) == ["pairs.tsv", "dev.tsv"]


def test_questions_are_put_aside(place: Path):
    """64 pairs of 8 questions: at least 20 pairs are 3 whole questions, and the seed draws them."""
    train, dev = put_aside(TRAIN, 20, 0)
    assert (len(train), len(dev)) == (40, 24)
    questions = [{each.pair.question.text for each in part} for part in (train, dev)]
    assert not questions[0] & questions[1]
    assert put_aside(TRAIN[::-1], 20, 0)[1] == dev[::-1]  # whatever the order
    drawn = {frozenset(each.pair.question.text for each in put_aside(TRAIN, 20, seed)[1]) for seed in range(20)}
    assert len(drawn) > 5
    with pytest.raises(ValueError, match=r"too few to put whole questions with 40 pairs aside .* --dev FILE"):
        put_aside(TRAIN, 40, 0)
    found = read_training_pairs(place / "pairs.tsv", None, 20, 0)
    assert (len(found.train), len(found.dev), found.put_aside) == (40, 24, True)


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_killed_and_given_again(place: Path, tmp_path: Path):
    """SIGKILL in the middle; the same command ends with the bytes of a training that was left alone."""
    command = [sys.executable, "-m", "evaluator.train"]
    more = ("--checkpoint-every", "1", "--set", "epochs=6")
    killed = subprocess.Popen(
        [*command, *flags(place, tmp_path / "killed", *more)],
        env=environment(),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "killed" / ".training"
    for _ in range(60_000):
        if any(int(path.stem[5:]) >= 5 for path in folder.glob("step-*.safetensors")) or killed.poll() is not None:
            break
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "README.md").exists()
    assert list(folder.glob("step-*.safetensors"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other process: sums in one order
    try:
        for name in ("killed", "whole"):
            assert main(flags(place, tmp_path / name, "--set", "epochs=6")) == 0
    finally:
        torch.set_num_threads(threads)
    for name in ("adapter_model.safetensors", "log.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_two_processes_are_one(place: Path, tmp_path: Path):
    """With dropout, batches that cannot be divided by two, and a last batch that gives one process nothing to do."""
    more = ("--set", "effective_batch=12", "micro_batch=4", "epochs=1")  # 64 pairs: 5 times 12 and 4
    assert main(flags(place, tmp_path / "one", *more)) == 0
    launch = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, "-m", *launch, "-m", "evaluator.train"]
    done = subprocess.run(
        [*command, *flags(place, tmp_path / "two", *more)],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("dev F1") == 1
    assert "2 processes on cpu" in (tmp_path / "two" / "README.md").read_text()
    one, two = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert [row["step"] for row in logs[0]] == [3, 6]
    for a, b in zip(*logs, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
