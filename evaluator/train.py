"""Trains a perspective detector: ``python -m evaluator.train --recipe NAME --pairs FILE --output FOLDER``.

The same command, given again, goes on with a training that was killed. On several GPUs: ``accelerate launch
--num_processes N -m evaluator.train ...``, or ``torchrun --nproc_per_node N -m evaluator.train ...``, which takes
several processes on a CPU too; the result is the same up to rounding. Heavy imports wait until the flags are known to
be right.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from corpora.mistakes import is_mistake

if TYPE_CHECKING:
    from evaluator.training_job import Job

OK, MISTAKE, INTERRUPTED = 0, 2, 130
NEEDED = ("accelerate", "peft", "safetensors", "torch", "transformers")


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, without the usage text before it."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""
    try:
        job = make_job(parse_flags(arguments))
        return _run(job)
    except KeyboardInterrupt:
        _say("interrupted: the same command goes on where this one stopped")
        return INTERRUPTED
    except (ValueError, OSError) as error:
        if not is_mistake(error):
            raise
        _say(f"error: {' '.join(str(error).split())}")
        return MISTAKE


def parse_flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags.

    Raises:
        ValueError: They are wrong; in one line.
    """
    parser = _Parser(
        prog="python -m evaluator.train",
        description="Train a perspective detector on labelled pairs. The same command goes on after a kill.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--recipe", required=True, metavar="NAME|FILE", help="a recipe's name (berds-mistral, ...) or YAML file")
    add("--pairs", required=True, type=Path, metavar="FILE", help="labelled pairs: .tsv, .csv or .jsonl (.gz)")
    add(
        "--dev", type=Path, metavar="FILE", help="pairs that choose the best checkpoint (default: questions of --pairs)"
    )
    add("--base-model", metavar="ID|FOLDER", help="another base model than the recipe's")
    add("--revision", metavar="NAME", help="branch, tag or commit of the base model")
    add("--output", required=True, type=Path, metavar="FOLDER", help="for the adapter or model, its card and log")
    add("--merge", type=Path, metavar="FOLDER", help="write base model and adapter as one model too, in fp32")
    add("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE", help="changes of the recipe (lora.r=8)")
    add("--seed", type=int, metavar="N", help="the same as --set seed=N")
    add("--device", choices=("cpu",), help="cpu: take no GPU (default: what accelerate finds)")
    add("--checkpoint-every", type=int, metavar="N", help="steps between checkpoints (default: at evaluations)")
    add("--overwrite", action="store_true", help="remove another run's result from --output")
    return parser.parse_args(arguments)


def make_job(flags: argparse.Namespace) -> Job:
    """What the flags ask for.

    Raises:
        ValueError: A recipe or file that is none; or packages that are missing.
    """
    from evaluator.recipe import with_base
    from evaluator.recipe_file import load_recipe

    changes = [*flags.set, *([] if flags.seed is None else [f"seed={flags.seed}"])]
    recipe = with_base(load_recipe(flags.recipe, changes), flags.base_model, flags.revision)
    if flags.checkpoint_every is not None and flags.checkpoint_every < 1:
        raise ValueError(f"--checkpoint-every {flags.checkpoint_every}: expected at least 1")
    for name in ("pairs", "dev"):
        path = getattr(flags, name)
        if path is not None and not path.is_file():
            raise ValueError(f"--{name} {path}: there is no such file")
    try:
        from evaluator.training_job import Job
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise ValueError(f"training needs {error.name!r}: pip install -e '.[judge]'") from error
    return Job(
        recipe,
        flags.pairs,
        flags.output,
        flags.dev,
        flags.merge,
        flags.device,
        flags.checkpoint_every,
        flags.overwrite,
    )


def _run(job: Job) -> int:
    from accelerate import PartialState

    from evaluator.training_card import command
    from evaluator.training_job import train

    best = train(job)
    PartialState().destroy_process_group()
    if best is not None:  # the main process
        print(f"dev F1 {100 * best.f1:.1f} after step {best.step}; {job.output} holds the weights and their card")
        print(f"use it: {command(job.recipe, str(job.output))}")
    return OK


def _say(message: str) -> None:
    """In the main process only: the others make the same mistake."""
    if os.environ.get("RANK", "0") == "0":
        print(message, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
