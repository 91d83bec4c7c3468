"""One training from files to files: what it depends on, the output folder, the training itself, what is published."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from transformers import AutoTokenizer

from corpora.artefacts import remove_stale, write_atomic
from corpora.fingerprint import digest
from evaluator.checkpoints import Checkpoints, Evaluation, Progress
from evaluator.detectors import DETECTORS
from evaluator.examples import class_weights, make_examples
from evaluator.pairs import labels_of
from evaluator.recipe import Recipe
from evaluator.training import Trainer
from evaluator.training_card import Facts, make_card
from evaluator.training_pairs import TrainingPairs, read_training_pairs
from lm.adapter import merge_adapter
from lm.prompts import Prompt, load_prompt
from lm.source import Source
from lm.transformer import quiet, read_config

VERSION = 1
"""Raise it when the same inputs give other weights: a training begun before then does not go on."""
CARD, LOG, RECIPE = "README.md", "log.jsonl", "recipe.yaml"


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for.

    Attributes:
        recipe: See ``evaluator.recipe``.
        pairs: Labelled pairs (``evaluator.pairs``).
        dev: Pairs that choose the best checkpoint; None: some of ``pairs`` are put aside.
        output: Folder of the adapter or model, its card and log.
        merge: Folder for the base model with the adapter merged into it, fp32; None: not wanted.
        device: ``cpu``, or None: what accelerate finds.
        checkpoint_every: Optimizer steps between checkpoints; None: at evaluations only.
        overwrite: Whether another run's result in ``output`` may go.
    """

    recipe: Recipe
    pairs: Path
    output: Path
    dev: Path | None = None
    merge: Path | None = None
    device: str | None = None
    checkpoint_every: int | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a result depends on, loaded as far as it is small."""

    data: TrainingPairs
    source: Source
    prompt: Prompt | None

    def named(self, recipe: Recipe) -> dict[str, object]:
        """What tells one run from another; names of files and folders do not count, only contents."""
        values = recipe.described() | {
            "base_model": self.source.identity,
            "revision": None,
            "package": None,
            "prompt": self.prompt.hash if self.prompt else None,
        }
        pairs, *dev = self.data.files.values()
        return {"version": VERSION, **values, "pairs": pairs, "dev": dev[0] if dev else None}


def train(job: Job) -> Evaluation | None:
    """Trains, goes on with a training that was killed, or finds that it is done; then merges where asked.

    Returns:
        The evaluation of the published weights in the main process; None in the others.

    Raises:
        ValueError: The inputs are wrong, or the output folder belongs to something else.
    """
    _check_merge(job)
    data = read_training_pairs(job.pairs, job.dev, job.recipe.dev_pairs, job.recipe.seed)
    recipe = job.recipe
    prompt = None if recipe.prompt is None else load_prompt(recipe.prompt)
    inputs = Inputs(data, Source(recipe.base_model, recipe.revision, recipe.package), prompt)
    checkpoints = Checkpoints(job.output)
    named = inputs.named(recipe)
    finished = _check_output(job, checkpoints, named)
    inputs.source.prefetch()  # says what is missing before other processes are waited for
    state: Any = PartialState(cpu=job.device == "cpu")
    if not finished:
        trainer = _trainer(job, inputs, checkpoints, state)
        state.wait_for_everyone()  # all have looked at the folder, and all inputs are good
        if state.is_main_process:
            _claim(job, checkpoints, named)
        state.wait_for_everyone()
        progress = trainer.run()
        if state.is_main_process:
            _publish(job, trainer, progress, make_card(_facts(job, inputs, progress, state)))
    best = None
    if state.is_main_process:
        best = Evaluation(**(checkpoints.run or {})["best"])
        if job.merge is not None:
            write_merged(recipe, inputs.source.folder, job.output, job.merge)
    state.wait_for_everyone()
    return best


def _trainer(job: Job, inputs: Inputs, checkpoints: Checkpoints, state: Any) -> Trainer:
    recipe, data = job.recipe, inputs.data
    folder = inputs.source.folder
    with quiet():
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    weights = class_weights(labels_of(data.train), recipe)
    train, dev = (make_examples(each, recipe, tokenizer, inputs.prompt, weights) for each in (data.train, data.dev))
    detector = DETECTORS[recipe.kind](folder, recipe, tokenizer)
    detector.model.to(state.device)
    return Trainer(detector, train, dev, state, checkpoints, job.checkpoint_every)


def _facts(job: Job, inputs: Inputs, progress: Progress, state: Any) -> Facts:
    return Facts(
        recipe=job.recipe,
        base=inputs.source.identity,
        prompt_hash=inputs.prompt.hash if inputs.prompt else None,
        pairs=inputs.data,
        evaluations=progress.evaluations,
        folder=str(job.output),
        processes=state.num_processes,
        device=torch.cuda.get_device_name() if state.device.type == "cuda" else state.device.type,
    )


def _publish(job: Job, trainer: Trainer, progress: Progress, card: str) -> None:
    """Writes the result aside, moves it file by file, the card last, and only then says that the run is finished."""
    checkpoints = trainer.checkpoints
    aside = checkpoints.folder / "result"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with quiet():
        trainer.detector.save(aside)
    log = "".join(json.dumps(asdict(each)) + "\n" for each in progress.evaluations)
    recipe = yaml.safe_dump(job.recipe.described(), sort_keys=False, allow_unicode=True)
    for name, text in ((LOG, log), (RECIPE, recipe), (CARD, card)):
        (aside / name).write_text(text, encoding="utf-8")
    names = sorted((path.name for path in aside.iterdir()), key=lambda name: (name == CARD, name))
    for name in names:
        with (aside / name).open("rb") as file:
            os.fsync(file.fileno())
        (aside / name).replace(job.output / name)
    if progress.best is None:
        raise RuntimeError("nothing to publish")
    checkpoints.start({**(checkpoints.run or {}), "finished": True, "files": names, "best": asdict(progress.best)})
    aside.rmdir()
    checkpoints.clear()


def _check_output(job: Job, checkpoints: Checkpoints, named: dict[str, object]) -> bool:
    """Whether the folder holds this very run, finished; refuses another one."""
    output = job.output
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: expected a folder")
    run = checkpoints.run
    if run is None:
        if output.is_dir() and any(path.name != checkpoints.folder.name for path in output.iterdir()):
            raise ValueError(f"--output {output} holds other files: give an empty or a new folder")
        return False
    if job.overwrite:
        return False
    if run["identity"] == digest(named):
        return bool(run["finished"])
    old = run.get("inputs", {})
    apart = [name for name in sorted({*old, *named}) if old.get(name) != named.get(name)]
    raise ValueError(
        f"--output {output} holds another run: it differs in {', '.join(apart) or 'its inputs'}: "
        "choose another folder, or --overwrite"
    )


def _claim(job: Job, checkpoints: Checkpoints, named: dict[str, object]) -> None:
    run = checkpoints.run
    if run is not None and job.overwrite:
        for name in run.get("files", []):
            (job.output / Path(name).name).unlink(missing_ok=True)
    if job.overwrite:
        checkpoints.clear()
    if run is None or job.overwrite:
        checkpoints.start({"identity": digest(named), "inputs": named, "finished": False})
    remove_stale(checkpoints.folder)


def _check_merge(job: Job) -> None:
    if job.merge is None:
        return
    if job.recipe.lora is None:
        raise ValueError(f"--merge {job.merge}: this recipe has no lora: --output gets whole weights already")
    if job.merge.resolve() == job.output.resolve() or job.output.resolve() in job.merge.resolve().parents:
        raise ValueError(f"--merge {job.merge}: give a folder outside of --output, which is the adapter's alone")
    if not (job.output / CARD).is_file():
        _check_free(job.merge)  # before the work, not after it


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--merge {folder} holds other files: give an empty or a new folder")


def write_merged(recipe: Recipe, base: Path, adapter: Path, folder: Path) -> None:
    """Writes the base model with the adapter merged into it, in fp32, because bf16 would round small updates away.

    Args:
        recipe: Of the adapter.
        base: The base model's files.
        adapter: What a training published; its card is copied.
        folder: Appears as a whole; one that holds this very result already is left as it is.

    Raises:
        ValueError: The folder holds something else.
    """
    card = (adapter / CARD).read_text(encoding="utf-8")
    if folder.exists():
        if (folder / CARD).is_file() and (folder / CARD).read_text(encoding="utf-8") == card:
            return
        _check_free(folder)
        folder.rmdir()
    config = read_config(base if recipe.kind == "causal" else adapter)
    loader: Callable[..., Any] = DETECTORS[recipe.kind].find_class(config).from_pretrained
    with quiet():
        model = loader(base, config=config, dtype=torch.float32, use_safetensors=True, trust_remote_code=False)
        merged = merge_adapter(model, adapter)
        tokenizer: Any = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        with quiet():
            merged.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
        write_atomic(aside / CARD, card)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
