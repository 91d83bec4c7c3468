"""Training from pairs to an adapter that the judges use: learnt, saved, merged, gone on with, chosen."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'judge'")
pytest.importorskip("peft", reason="needs the extra 'judge'")
pytest.importorskip("accelerate", reason="needs the extra 'judge'")

from accelerate import PartialState
from safetensors.torch import load_file
from transformers import AutoTokenizer

from evaluator import training, training_job
from evaluator.checkpoints import Checkpoints, Evaluation, Progress, best_of
from evaluator.detectors import DETECTORS
from evaluator.examples import make_examples
from evaluator.judges.mistral import Mistral
from evaluator.judges.nli import Nli
from evaluator.judges.small import Small
from evaluator.recipe import Recipe
from evaluator.recipe_file import load_recipe
from evaluator.schedule import micro_batches
from evaluator.training import Trainer, evaluation, make_optimizer
from evaluator.training_job import Job, train
from lm.cross_encoder import CrossEncoder
from lm.prompts import load_prompt
from lm.source import Source
from tests.evaluator import tiny

TRAIN, DEV = tiny.make_pairs(192, seed=1), tiny.make_pairs(40, seed=2)
LEARNS = {
    "causal": {"epochs": 5, "learning_rate": 2e-2},
    "cross_encoder": {"epochs": 4, "learning_rate": 1e-2, "effective_batch": 8, "micro_batch": 8},
}


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch):
    """Sums in one order, so that results can be compared bit by bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Place:
    """Base models and pairs, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bases = {"causal": tiny.make_mistral(folder / "mistral"), "cross_encoder": tiny.make_bert(folder / "bert")}
        self.pairs, self.dev = tiny.write(folder, "pairs.tsv", TRAIN), tiny.write(folder, "dev.jsonl", DEV)
        self.few = tiny.write(folder, "few.tsv", TRAIN[:96])

    def recipe(self, kind: str, **changes: object) -> Recipe:
        values = tiny.CAUSAL_RECIPE if kind == "causal" else tiny.CROSS_RECIPE
        return load_recipe(tiny.write_recipe(self.folder, values, self.bases[kind], **changes))

    def job(self, output: Path, kind: str = "causal", **changes: object) -> Job:
        return Job(self.recipe(kind, **changes), self.pairs, output, self.dev, device="cpu")

    def short(self, output: Path, kind: str = "causal", **changes: object) -> Job:
        """12 steps, evaluated after every third."""
        return replace(self.job(output, kind, epochs=2, **changes), pairs=self.few)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


def f1(probabilities, gold) -> float:
    predicted = [p is not None and p >= 0.5 for p in probabilities]
    hits = sum(p and g for p, g in zip(predicted, gold, strict=True))
    return 2 * hits / (sum(predicted) + sum(gold))


def judged(judge) -> list[float | None]:
    found = dict(judge.judge([each.pair for each in DEV]))
    return [found[i].probability for i in range(len(DEV))]


def test_causal_learns_and_adapter_and_merged_judge_alike(place: Place, tmp_path: Path):
    job = replace(place.job(tmp_path / "out", **LEARNS["causal"]), merge=tmp_path / "merged")
    best = train(job)
    assert best.f1 >= 0.95
    more = {"prompt": job.recipe.prompt, "rendering": "mistral", "dtype": "fp32"}
    adapter = judged(Mistral(place.bases["causal"], adapter=tmp_path / "out", **more))
    merged = judged(Mistral(tmp_path / "merged", **more))
    assert None not in adapter
    assert f1(adapter, [each.label for each in DEV]) == pytest.approx(best.f1)
    np.testing.assert_allclose(adapter, merged, atol=1e-6)
    untrained = judged(Mistral(place.bases["causal"], **more))
    assert max(abs((a or 0) - (b or 0)) for a, b in zip(adapter, untrained, strict=True)) > 0.5
    files = {path.name for path in (tmp_path / "out").iterdir()}
    expected = {
        "adapter_config.json",
        "adapter_model.safetensors",
        "README.md",
        "recipe.yaml",
        "log.jsonl",
        ".training",
    }
    assert files == expected
    assert [path.name for path in (tmp_path / "out" / ".training").iterdir()] == ["run.json"]


@pytest.mark.parametrize("loss", ["bce", "ce"])
def test_cross_encoder_learns_and_adapter_and_merged_judge_alike(place: Place, tmp_path: Path, loss: str):
    job = replace(place.job(tmp_path / "out", "cross_encoder", loss=loss, **LEARNS["cross_encoder"]))
    job = replace(job, merge=tmp_path / "merged")
    best = train(job)
    assert best.f1 >= 0.95
    texts = [(each.pair.passage.text, each.pair.perspective.text) for each in DEV]
    adapter = CrossEncoder(place.bases["cross_encoder"], adapter=tmp_path / "out")
    names = ("entailment",) if loss == "bce" else ("not_entailment", "entailment")
    assert adapter.labels == CrossEncoder(tmp_path / "merged").labels == names
    np.testing.assert_allclose(adapter.logits(texts), CrossEncoder(tmp_path / "merged").logits(texts), atol=1e-5)
    merged = judged(Nli(tmp_path / "merged"))
    assert f1(merged, [each.label for each in DEV]) == pytest.approx(best.f1)
    if loss == "bce":
        small = judged(Small(place.bases["cross_encoder"], adapter=tmp_path / "out", max_length=64))
        np.testing.assert_allclose(small, merged, atol=1e-5)


def test_another_head_is_merged_as_well(place: Place, tmp_path: Path):
    lora = tiny.CROSS_RECIPE["lora"] | {"train_also": ["classifier"]}
    job = place.short(tmp_path / "out", "cross_encoder", head="segments", lora=lora)
    train(replace(job, merge=tmp_path / "merged"))
    texts = [(each.pair.passage.text, each.pair.perspective.text) for each in DEV]
    adapter = CrossEncoder(place.bases["cross_encoder"], adapter=tmp_path / "out").logits(texts)
    np.testing.assert_allclose(adapter, CrossEncoder(tmp_path / "merged").logits(texts), atol=1e-5)


def test_whole_models_are_trained_too(place: Place, tmp_path: Path):
    """Without a LoRA all weights move, and the result is a model folder of its own."""
    job = place.job(tmp_path / "out", "cross_encoder", lora=None, epochs=4, learning_rate=5e-3, dtype="bf16")
    assert train(job) is not None
    saved, base = (
        load_file(tmp_path / "out" / "model.safetensors"),
        load_file(place.bases["cross_encoder"] / "model.safetensors"),
    )
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    moved = [name for name, tensor in base.items() if not torch.equal(tensor, saved[f"bert.{name}"])]
    assert len(moved) >= 0.9 * len(base)
    assert all(p is not None for p in judged(Nli(tmp_path / "out")))


def trainer(place: Place, folder: Path, kind: str = "causal", **changes: object) -> Trainer:
    recipe = place.recipe(kind, **changes)
    base = place.bases[kind]
    tokenizer = AutoTokenizer.from_pretrained(base)
    prompt = load_prompt(recipe.prompt) if recipe.prompt else None
    train_, dev = (make_examples(each, recipe, tokenizer, prompt) for each in (TRAIN[:24], DEV))
    detector = DETECTORS[kind](base, recipe, tokenizer)
    return Trainer(detector, train_, dev, PartialState(cpu=True), Checkpoints(folder))


def difference(one: Trainer, other: Trainer) -> float:
    a, b = one.detector.state(), other.detector.state()
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


@pytest.mark.parametrize("kind", ["causal", "cross_encoder"])
def test_accumulation_does_not_matter(place: Place, tmp_path: Path, kind: str):
    """A batch of 10 with answers of the same loss whole, or in parts of 4, 4 and 2: the same step."""
    recipe = tiny.CAUSAL_RECIPE if kind == "causal" else tiny.CROSS_RECIPE
    same = {"effective_batch": 10, "lora": recipe["lora"] | {"dropout": 0.0}}
    one, two = (trainer(place, tmp_path, kind, micro_batch=size, **same) for size in (10, 4))
    for step in range(5):
        assert one.step(step) == pytest.approx(two.step(step), rel=1e-5)
    assert difference(one, two) < 1e-4
    assert difference(one, trainer(place, tmp_path, kind, **same)) > 1e-3


class InOrder(transformers.Trainer):
    """Takes the examples as they come."""

    def _get_train_sampler(self, *arguments, **named):
        return torch.utils.data.SequentialSampler(self.train_dataset)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_same_weights_as_from_the_trainer_of_transformers(place: Place, tmp_path: Path, schedule: str):
    """Two epochs of 24 pairs, 12 at a time, against an implementation that is not ours; without dropout."""
    lora = tiny.CAUSAL_RECIPE["lora"] | {"dropout": 0.0}
    changes = {"effective_batch": 12, "micro_batch": 4, "epochs": 2, "lora": lora, "schedule": schedule, "warmup": 0.2}
    ours = trainer(place, tmp_path, **changes)
    theirs = trainer(place, tmp_path, **changes).detector.model
    order = [i for step in range(ours.n_steps) for part in micro_batches(step, ours.lengths, ours.recipe) for i in part]
    rows = [(ours.train[i].row["input_ids"], ours.train[i].n_answer) for i in order]

    def collate(batch):
        longest = max(len(ids) for ids, _ in batch)
        ids = [each + [0] * (longest - len(each)) for each, _ in batch]  # padded on the right, ours is on the left
        mask = [[1] * len(each) + [0] * (longest - len(each)) for each, _ in batch]
        labels = [[-100] * (len(each) - n) + each[-n:] + [-100] * (longest - len(each)) for each, n in batch]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(labels)}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "theirs"), num_train_epochs=1, per_device_train_batch_size=4, use_cpu=True,
        gradient_accumulation_steps=3, learning_rate=ours.recipe.learning_rate, weight_decay=ours.recipe.weight_decay,
        warmup_steps=1, lr_scheduler_type=schedule, report_to=[], save_strategy="no", disable_tqdm=True,
        logging_strategy="no", remove_unused_columns=False, seed=5, max_grad_norm=1.0,
    )  # fmt: skip
    InOrder(model=theirs, args=arguments, train_dataset=rows, data_collator=collate).train()
    for step in range(ours.n_steps):
        ours.step(step)
    found = {name: each.detach() for name, each in theirs.named_parameters() if each.requires_grad}
    start = trainer(place, tmp_path, **changes).detector.state()
    assert found.keys() == start.keys()
    for name, tensor in ours.detector.state().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=2e-5)
    assert max((found[name] - start[name]).abs().max().item() for name in start) > 1e-2


def test_gradient_checkpointing_changes_nothing(place: Place, tmp_path: Path):
    plain, saving = (trainer(place, tmp_path, gradient_checkpointing=on) for on in (False, True))
    assert saving.detector.model.get_base_model().is_gradient_checkpointing
    for step in range(3):
        assert plain.step(step) == pytest.approx(saving.step(step), rel=1e-5)
    assert difference(plain, saving) < 1e-5


def test_only_the_adapter_moves(place: Place, tmp_path: Path):
    one = trainer(place, tmp_path)
    frozen = {name: each.clone() for name, each in one.detector.model.named_parameters() if not each.requires_grad}
    for step in range(3):
        one.step(step)
    for name, each in one.detector.model.named_parameters():
        assert name not in frozen or torch.equal(each, frozen[name])
    assert len(frozen) == 2 * 9 + 3  # two layers of 7 matrices and 2 norms; embeddings, last norm, head
    assert len(one.detector.parameters) == 2 * 4 * 2  # two matrices for each of 4 modules in each of 2 layers


def test_bf16_keeps_what_is_trained_in_fp32(place: Place, tmp_path: Path):
    one, exact = trainer(place, tmp_path, dtype="bf16"), trainer(place, tmp_path)
    assert {each.dtype for each in one.detector.parameters.values()} == {torch.float32}
    frozen = {each.dtype for each in one.detector.model.parameters() if not each.requires_grad}
    assert frozen == {torch.bfloat16}
    losses = [(one.step(step), exact.step(step)) for step in range(3)]
    assert all(a == pytest.approx(b, rel=0.05) for a, b in losses)
    assert any(a != b for a, b in losses)


def test_weights_of_classes_count(place: Place, tmp_path: Path):
    """With weights (1, 3), the loss is the weighted mean: by hand from the losses of the single pairs."""
    one = trainer(
        place, tmp_path, effective_batch=24, micro_batch=24, lora=tiny.CAUSAL_RECIPE["lora"] | {"dropout": 0.0}
    )
    outcome = one.detector.outcome(one.train)
    losses = outcome.losses.tolist()
    weights = [3.0 if each.label else 1.0 for each in one.train]
    expected = sum(w * x for w, x in zip(weights, losses, strict=True)) / sum(2 * w for w in weights)  # 2 tokens each
    one.train = [replace(each, weight=weight) for each, weight in zip(one.train, weights, strict=True)]
    assert one.step(0) == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(sum(losses) / (2 * len(losses)), rel=1e-3)


def test_optimizer_is_adamw_and_spares_vectors(place: Place, tmp_path: Path):
    one = trainer(place, tmp_path, "cross_encoder", lora=None, weight_decay=0.1)
    groups = {
        group["weight_decay"]: group["params"]
        for group in make_optimizer(one.detector.parameters, one.recipe).param_groups
    }
    assert {each.ndim for each in groups[0.1]} == {2}
    assert {each.ndim for each in groups[0.0]} == {1}
    assert len(groups[0.1]) + len(groups[0.0]) == len(list(one.detector.model.parameters()))


def test_a_loss_that_is_no_number_ends_it(place: Place, tmp_path: Path):
    one = trainer(place, tmp_path)
    next(iter(one.detector.parameters.values())).data.fill_(math.nan)
    with pytest.raises(ValueError, match=r"the loss is nan at step 1: lower learning_rate"):
        one.step(0)


def test_seeds(place: Place, tmp_path: Path):
    one, two, other = (trainer(place, tmp_path, seed=seed) for seed in (0, 0, 1))
    for each in (one, two, other):
        torch.manual_seed(hash(each) % 1000)  # whatever happened before
        each.step(0)
        each.step(1)
    assert difference(one, two) == 0
    assert difference(one, other) > 1e-3


def crafted(step: int, f1: float, dev_loss: float = 1.0) -> Evaluation:
    return Evaluation(step, step / 10, 1.0, dev_loss, f1, 0.5, 0.5, 0)


def test_the_best_is_the_highest_f1():
    """0.50, 0.70, 0.65: the second; equal F1: the lower loss; equal loss too: the earlier."""
    assert best_of([]) is None
    assert best_of([crafted(1, 0.5), crafted(2, 0.7), crafted(3, 0.65)]).step == 2
    assert best_of([crafted(1, 0.7, 0.3), crafted(2, 0.7, 0.2), crafted(3, 0.1, 0.1)]).step == 2
    assert best_of([crafted(1, 0.0, 0.4), crafted(2, 0.0, 0.4)]).step == 1


def test_weights_of_the_best_evaluation_are_published(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """F1 made up as 0.2, 0.9, 0.5, 0.9 with a higher loss: the weights after the second evaluation are published."""
    made_up = iter([(0.2, 1.0), (0.9, 0.5), (0.5, 0.1), (0.9, 0.6)])
    states: dict[int, dict[str, object]] = {}
    original = training.Trainer.judge

    def judge(self):
        states[len(states) + 1] = self.detector.state()
        return original(self)

    def fake(answers, dev, progress, per_epoch):
        value, loss = next(made_up)
        return replace(evaluation(answers, dev, progress, per_epoch), f1=value, dev_loss=loss)

    monkeypatch.setattr(training.Trainer, "judge", judge)
    monkeypatch.setattr(training, "evaluation", fake)
    best = train(place.short(tmp_path / "out"))
    assert (best.f1, best.dev_loss) == (0.9, 0.5)
    saved = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert len(states) == 4
    for name, tensor in states[2].items():
        assert torch.equal(saved[name.replace(".default", "")], tensor)
    assert any(not torch.equal(saved[name.replace(".default", "")], states[4][name]) for name in states[4])
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [each["f1"] for each in log] == [0.2, 0.9, 0.5, 0.9]


def test_dev_scores_by_hand(place: Place, tmp_path: Path):
    """5 pairs, Yes: 1, 1, 0, 0, 1; said: .9, .4, .5, .1, .6: hits 2, said 3, Yes 3: F1 4/6; right 3 of 5."""
    one = trainer(place, tmp_path)
    gold = (True, True, False, False, True)
    dev = [replace(one.dev[0], label=label, weight=1.0 + label) for label in gold]
    said = [(i, loss, p, i != 1) for i, (loss, p) in enumerate([(1, 0.9), (2, 0.4), (3, 0.5), (1, 0.1), (2, 0.6)])]
    found = evaluation(said, dev, Progress(6, [1.0, 3.0]), 12)
    assert (found.step, found.epoch, found.train_loss) == (6, 0.5, 2.0)
    assert found.f1 == pytest.approx(4 / 6)
    assert (found.accuracy, found.predicted_positive, found.unparsed) == (0.6, 0.6, 1)
    # weights 2, 2, 1, 1, 2 and answers of 2 tokens: (2*1 + 2*2 + 1*3 + 1*1 + 2*2) / (2 * 8)
    assert found.dev_loss == pytest.approx(14 / 16)
    nothing = evaluation([(i, 1.0, 0.1, True) for i in range(5)], dev, Progress(6, [1.0]), 12)
    assert nothing.f1 == 0.0


class KilledError(Exception):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def uninterrupted(place: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    torch.set_num_threads(1)
    output = tmp_path_factory.mktemp("whole") / "out"
    train(place.short(output))
    return published(output)


def published(output: Path) -> dict[str, bytes]:
    names = ("adapter_model.safetensors", "log.jsonl", "recipe.yaml")
    return {name: (output / name).read_bytes() for name in names}


KILLS = {
    "before the first checkpoint": (training.Trainer, "step", 3, False),
    "between two checkpoints": (training.Trainer, "step", 8, False),
    "after a step, before its checkpoint": (Checkpoints, "save", 3, False),
    "while a checkpoint is written": (training_job.Checkpoints, "_prune", 4, False),
    "after the best weights are kept": (Checkpoints, "save_best", 1, True),
    "at the end": (training_job, "_publish", 1, False),
    "after the weights are published": (Checkpoints, "start", 2, False),
    "after all is published": (Checkpoints, "clear", 1, False),
}


@pytest.mark.parametrize("where", KILLS)
@pytest.mark.parametrize("checkpoint_every", [None, 1])
def test_a_killed_training_goes_on(
    place: Place,
    tmp_path: Path,
    uninterrupted: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    checkpoint_every: int | None,
):
    """Stopped anywhere, the same command ends with the same bytes."""
    owner, name, count, after = KILLS[where]
    calls = 0
    original = getattr(owner, name)

    def stop(*arguments):
        nonlocal calls
        calls += 1
        if calls == count and not after:
            raise KilledError
        found = original(*arguments)
        if calls == count:
            raise KilledError
        return found

    job = replace(place.short(tmp_path / "out"), checkpoint_every=checkpoint_every)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, stop)
        with pytest.raises(KilledError):
            train(job)
    steps = 0
    real = training.Trainer.step

    def counted(self, step):
        nonlocal steps
        steps += 1
        return real(self, step)

    monkeypatch.setattr(training.Trainer, "step", counted)
    best = train(job)
    assert published(tmp_path / "out") == uninterrupted
    assert (
        best.step
        == max(
            (json.loads(line) for line in uninterrupted["log.jsonl"].splitlines()),
            key=lambda each: (each["f1"], -each["dev_loss"]),
        )["step"]
    )
    if where in ("at the end", "after the weights are published", "after all is published"):
        assert steps == 0  # nothing is computed twice
    elif checkpoint_every == 1:
        assert steps < 12
    assert train(job) == best  # done: nothing happens any more
    assert Source(tmp_path / "out").identity.startswith("content:")


def test_files_beside_an_adapter_are_no_part_of_its_identity(place: Place, tmp_path: Path):
    job = replace(place.job(tmp_path / "out", epochs=1), pairs=place.few)
    train(job)
    before = Source(tmp_path / "out").identity
    (tmp_path / "out" / "README.md").write_text("other")
    Checkpoints(tmp_path / "out").save_best(1, {"x": torch.zeros(1)})
    assert Source(tmp_path / "out").identity == before


def test_damaged_checkpoints_are_named(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = replace(place.job(tmp_path / "out", epochs=1), pairs=place.few)
    monkeypatch.setattr(training_job, "_publish", lambda *arguments: (_ for _ in ()).throw(KilledError()))
    with pytest.raises(KilledError):
        train(job)
    [checkpoint] = (tmp_path / "out" / ".training").glob("step-*.safetensors")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=rf"{checkpoint.name} .*--overwrite"):
        train(job)
    monkeypatch.undo()
    assert train(replace(job, overwrite=True)) is not None


def test_a_process_with_the_same_command_is_not_disturbed(place: Place, tmp_path: Path):
    """One that is behind removes nothing of one that is ahead."""
    behind, ahead = (trainer(place, tmp_path / "out") for _ in range(2))
    for each, step in ((ahead, 8), (behind, 2), (behind, 4)):
        progress = Progress(step, [], [crafted(step, 0.5)])
        each.checkpoints.save_best(step, each.detector.state())
        each.checkpoints.save(progress, each.detector.parameters, each.optimizer)
    names = sorted(path.name for path in (tmp_path / "out" / ".training").iterdir())
    assert names == [f"{kind}-0000000{step}.safetensors" for kind in ("best", "step") for step in (4, 8)]
    assert behind.checkpoints.load(behind.detector.parameters, behind.optimizer, behind.detector.device).step == 8


def test_output_belongs_to_one_run(place: Place, tmp_path: Path):
    output = tmp_path / "out"
    job = replace(place.job(output, epochs=1), pairs=place.few)
    train(job)
    first = published(output)
    other = replace(job, recipe=place.recipe("causal", epochs=1, seed=1))
    with pytest.raises(
        ValueError, match=r"holds another run: it differs in seed: choose another folder, or --overwrite"
    ):
        train(other)
    changed = tiny.write(tmp_path, "pairs.tsv", TRAIN[1:])
    with pytest.raises(ValueError, match=r"it differs in pairs"):
        train(replace(job, pairs=changed))
    assert published(output) == first
    train(replace(other, overwrite=True))
    assert published(output)["adapter_model.safetensors"] != first["adapter_model.safetensors"]
    (tmp_path / "renamed.tsv").write_bytes(place.few.read_bytes())
    train(replace(job, pairs=tmp_path / "renamed.tsv", overwrite=True))
    assert published(output)["adapter_model.safetensors"] == first["adapter_model.safetensors"]
    (output / ".training" / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is damaged: remove "):
        train(job)


def test_folders_of_somebody_else_are_left_alone(place: Place, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"holds other files: give an empty or a new folder"):
            train(replace(replace(place.job(tmp_path / "out", epochs=1), pairs=place.few), overwrite=overwrite))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match="expected a folder"):
        train(place.job(place.pairs, epochs=1))
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "thesis.tex").write_text("x")
    job = replace(place.job(tmp_path / "new", epochs=1), merge=tmp_path / "merged")
    with pytest.raises(ValueError, match=r"--merge .* holds other files"):
        train(job)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="outside of --output"):
        train(replace(job, merge=tmp_path / "new" / "merged"))
    with pytest.raises(ValueError, match="has no lora"):
        train(replace(job, recipe=place.recipe("causal", lora=None), merge=tmp_path / "other"))
