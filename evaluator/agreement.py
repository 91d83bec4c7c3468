"""How well a judge agrees with people: ``python -m evaluator.agreement --judge NAME --pairs FILE``.

Prints the rows of Table 7 of BERDS (Chen and Choi 2024, https://arxiv.org/abs/2409.18110) and more for one or several
judges, beside random answers, always Yes and always No, and the published rows; with ``--probes`` also what the answers
hang on. Judgements go through the store. Heavy imports wait until the flags are known to be right.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from corpora.mistakes import is_mistake

if TYPE_CHECKING:
    from evaluator.agreement_results import Answers
    from evaluator.judges import Judge
    from evaluator.pairs import LabelledPair
    from evaluator.probes import Probe

OK, MISTAKE, INTERRUPTED = 0, 2, 130
GOLD = "gold"
PARSE = ("probability", "authors")
"""The two values of the argument ``parse`` of judges that have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""
    try:
        text = run(parse_flags(arguments))
    except KeyboardInterrupt:
        _say("interrupted: the same command goes on where this one stopped")
        return INTERRUPTED
    except (ValueError, OSError) as error:
        if not is_mistake(error):
            raise
        _say(f"error: {' '.join(str(error).split())}")
        return MISTAKE
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def run(flags: argparse.Namespace) -> str:
    """What the command prints.

    Raises:
        ValueError: The flags do not fit together, or an input is wrong.
    """
    from evaluator.pairs import labels_of, read_pairs

    pairs = read_pairs(flags.pairs)
    labels_of(pairs)
    judges = _judges(flags)

    from evaluator.agreement_results import Measured, Settings
    from evaluator.probes import make_probes

    probes = make_probes(pairs, flags.probe_pairs, flags.seed) if flags.probes else []
    answers = [_asked(flags, name, judge, pairs, probes) for name, judge in judges.items()]
    document = Measured(pairs, Settings(flags.threshold, flags.resamples, flags.seed)).document(answers, probes)
    if flags.json:
        import json

        return json.dumps({"file": str(flags.pairs), **document}, indent=1, allow_nan=False)
    from evaluator.agreement_tables import report

    return report(document, flags.pairs.name)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


class _JudgeArguments(argparse.Action):
    """``key=value`` arguments belong to the judge that was named last."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        if not namespace.judge:
            raise ValueError("--judge-args: name the judge before its arguments")
        namespace.judge[-1] = (namespace.judge[-1][0], (*namespace.judge[-1][1], *values))


def parse_flags(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of a command line.

    Raises:
        ValueError: The command line is wrong; the message is one line.
    """
    parser = _Parser(
        prog="python -m evaluator.agreement", description="How well do judges agree with people?", allow_abbrev=False
    )
    add = parser.add_argument
    add("--judge", type=lambda name: (name, ()), action="append", default=[], metavar="NAME", required=True,
        help="a name or module:Class; give several to compare them with the first")  # fmt: skip
    add("--judge-args", action=_JudgeArguments, nargs="+", metavar="KEY=VALUE", help="arguments of the judge before")
    add(
        "--pairs",
        type=Path,
        required=True,
        metavar="FILE",
        help="labelled pairs: .tsv, .csv or .jsonl (.gz may follow)",
    )
    add("--probes", action="store_true", help="ask about changed pairs too: negated, shuffled, stuffed, injected ...")
    add("--probe-pairs", type=int, default=500, metavar="N", help="most pairs per probe (default: 500)")
    add("--parse-difference", action="store_true", help="compare parse=probability and parse=authors of each judge")
    add("--threshold", type=float, default=0.5, metavar="P", help="Yes from this probability on (default: 0.5)")
    add("--resamples", type=int, default=10_000, metavar="N", help="of the bootstrap (default: 10000)")
    add("--seed", type=int, default=0, metavar="N", help="of the bootstrap and the probes (default: 0)")
    add("--store", type=Path, metavar="FOLDER", help="the store of judgements (default: judgements in the cache)")
    add("--cache", type=Path, metavar="FOLDER", help="the cache that the store is in, as for the runs")
    add("--json", action="store_true", help="print everything as JSON")
    flags = parser.parse_args(arguments)
    for problem, wrong in (
        (f"--threshold {flags.threshold}: give a probability above 0, up to 1", not 0 < flags.threshold <= 1),
        (f"--resamples {flags.resamples}: give 1 or more", flags.resamples < 1),
        (f"--probe-pairs {flags.probe_pairs}: give 1 or more", flags.probe_pairs < 1),
        ("--store and --cache exclude each other", flags.store is not None and flags.cache is not None),
    ):
        if wrong:
            raise ValueError(problem)
    return flags


def _judges(flags: argparse.Namespace) -> dict[str, Judge]:
    """Name as printed, with the arguments by which namesakes differ -> judge."""
    from corpora.fingerprint import fingerprint
    from evaluator.judges import JUDGES, Judge

    wanted: list[tuple[str, tuple[str, ...]]] = flags.judge
    if any(name == GOLD for name, _ in wanted):
        raise ValueError(f"--judge {GOLD}: the labels are the gold here: name the judge that is to agree with them")
    if flags.parse_difference:
        wanted = [variant for name, given in wanted for variant in _parse_variants(name, given)]
    judges: dict[str, Judge] = {}
    for name, given in wanted:
        alike = [set(each) for other, each in wanted if other == name]
        shown = " ".join([name, *(each for each in given if each not in set.intersection(*alike))])
        if shown in judges:
            raise ValueError(f"--judge {shown}: given twice: leave one out, or give other --judge-args")
        judge = JUDGES.create(name, given)
        if not isinstance(judge, Judge) or not callable(judge.judge) or not callable(judge.render):
            raise ValueError(
                f"judge {name!r}: {type(judge).__name__} has no methods judge and render: see judges/base.py"
            )
        fingerprint(judge)  # now, because it may be refused
        judges[shown] = judge
    return judges


def _parse_variants(name: str, given: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    import inspect

    from evaluator.judges import JUDGES

    parameter = inspect.signature(JUDGES.load(name)).parameters.get("parse")
    if parameter is None:
        raise ValueError(f"--parse-difference: judge {name!r} has no argument 'parse'")
    others = tuple(each for each in given if not each.startswith("parse="))
    return [(name, (*others, f"parse={value}")) for value in PARSE]


def _asked(
    flags: argparse.Namespace, name: str, judge: Judge, pairs: Sequence[LabelledPair], probes: Sequence[Probe]
) -> Answers:
    """A judge's answers to the pairs and to the probes, in one go; what is stored is not asked again."""
    import numpy as np
    from tqdm import tqdm

    from corpora.fingerprint import fingerprint
    from evaluator.agreement_results import Answers
    from evaluator.judgements import Counts, JudgementStore, stream
    from evaluator.probes import all_pairs

    asked = [each.pair for each in pairs] + all_pairs(probes)
    probabilities = np.full(len(asked), np.nan)
    counts = Counts()
    store = JudgementStore(flags.cache / "judgements" if flags.cache is not None else flags.store)
    identity = fingerprint(judge)
    with tqdm(total=len(asked), desc=f"judge {name}", unit="pair", disable=None, leave=False) as bar:
        for i, judgement in stream(judge, identity, asked, store, counts):
            if judgement.probability is not None:
                probabilities[i] = judgement.probability
            bar.update(1)
    _say(f"judge {name}: {counts.needed} pairs needed, {counts.reused} reused, {counts.judged} judged")
    return Answers(name, identity, probabilities[: len(pairs)], probabilities[len(pairs) :].reshape(-1, 2), counts)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _stop(*_: object) -> None:
    """A scheduler's SIGTERM ends a run as Ctrl-C does: what was judged is published first."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
