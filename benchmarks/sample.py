"""The command line ``python -m benchmarks.sample``: a probability sample of a result's pairs for people to label.

    python -m benchmarks.sample RESULT --n 200 --output sample.csv

The file has the form of evaluator/pairs.py: texts and ids, an empty ``label``, and the ``inclusion_probability`` and
``rank`` of each pair. ``read_pairs(..., unlabelled=True)`` reads it, before and after people have filled in the labels;
``evaluator.agreement`` measures a judge on it, and evaluator/correction.py what its errors do to the scores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.command import cache_at, ended
from benchmarks.config import Flags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.experiment import Experiment
    from corpora.types import Question, Run
    from evaluator.pairs import LabelledPair

    Place = tuple[Question, int, int, float]

UNITS = ("pair", "question")
SUFFIXES = (".csv", ".tsv", ".jsonl")
N = {"pair": 200, "question": 50}
FLAGS = ("task", "task_args", "corpus", "corpus_args", "cache")
HELPS = {
    "task": "the questions, where the result cannot name them: a folder",
    "corpus": "the passages, where the result cannot name them: a BEIR corpus.jsonl or its folder",
}
DESCRIPTION = """Draw a probability sample of the pairs of a result for people to label.

Unit 'pair': pairs by chance, half of them from those that the result's labels call supports, spread over the ranks;
for the errors of a judge, and for estimates that are sums over pairs. Unit 'question': questions by chance, and all
pairs of their top k; for estimates of whole questions, such as MRecall. Pairs come in an order that tells nothing;
hide the columns rank and inclusion_probability from those who label."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""

    def work() -> None:
        flags = parse(arguments)
        with cache_at(flags.get("cache")):
            print(sample(**flags))

    return ended(work)


def parse(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The arguments of ``sample`` that a command line asks for.

    Raises:
        ValueError: The command line is wrong; the message is one line.
    """
    parser = Flags("python -m benchmarks.sample", DESCRIPTION)
    parser.add_argument("result", type=Path, metavar="RESULT", help="folder of a finished result")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a new .csv, .tsv or .jsonl")
    parser.add_argument("--n", type=int, metavar="N", help="pairs (default: 200) or questions (default: 50)")
    parser.add_argument("--unit", choices=UNITS, default=UNITS[0], help="what is drawn")
    parser.add_argument("--k", type=int, default=5, metavar="K", help="only the top k of each question")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw")
    parser.add_run_flags(FLAGS, **HELPS)
    return vars(parser.parse_args(arguments))


def sample(
    result: Path, output: Path, n: int | None = None, unit: str = UNITS[0], k: int = 5, seed: int = 0, **flags: Any
) -> str:
    """Writes a sample of a result's pairs, and returns a text that says what is in it.

    Args:
        result: Folder of a finished result.
        output: The file, which must not be there: it could hold labels.
        n: How many pairs or questions; default: 200 pairs, 50 questions; all where there are fewer.
        unit: ``pair`` or ``question``.
        k: Only pairs of the first k ranks.
        seed: Of the draw.
        flags: Fields of ``RunConfig`` that the result cannot name.
    """
    import numpy as np

    from benchmarks.reopen import reopen
    from benchmarks.results import read_labels
    from evaluator.labels import matrices
    from evaluator.pairs import write_pairs

    n = N[unit] if n is None else n
    ending = Path(output.name.removesuffix(".gz")).suffix
    for problem, wrong in (
        (
            f"--output {output}: expected a name that ends in {', '.join(SUFFIXES)} (.gz may follow)",
            ending not in SUFFIXES,
        ),
        (f"--n {n}: give 1 or more", n < 1),
        (f"--k {k}: give 1 or more", k < 1),
        (f"--seed {seed}: give 0 or more", seed < 0),
        (f"--output {output}: it is there, and people may have labelled it: choose another name", output.exists()),
    ):
        if wrong:
            raise ValueError(problem)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in flags.items()}
    experiment, run = reopen(result, given, judged=False)
    if k > experiment.config.depth:
        raise ValueError(f"--k {k}: the result goes down to rank {experiment.config.depth} only")
    table = read_labels(result)
    if table is None:
        raise ValueError(f"{result}: labels.parquet is not there any more: make the result anew")
    labels = matrices(table, run, experiment.scored, experiment.config.threshold)
    random = np.random.default_rng(seed)
    if unit == "pair":
        places, told = draw_pairs(experiment.scored, labels, n, k, random)
    else:
        places, told = draw_questions(experiment.scored, labels, n, k, random, by_group=experiment.task.macro)
    pairs = list(_labelled(experiment, run, places, random))
    write_pairs(output, pairs)
    return "\n".join([f"{output}: {len(pairs)} pairs of the top {k} of {result}", *told])


def draw_pairs(
    questions: Sequence[Question], labels: Mapping[str, NDArray[np.int8]], n: int, k: int, random: np.random.Generator
) -> tuple[list[Place], list[str]]:
    """Pairs by chance, stratified by label and rank: (question, position, perspective, inclusion probability).

    Raises:
        ValueError: n is too small for two pairs of each stratum.
    """
    from evaluator.sampling import Stratum, allocate, draw, shares_by_label, strata_of

    frame: dict[Stratum, list[tuple[Question, int, int]]] = {}
    for question in questions:
        for stratum, found in strata_of(labels[question.question_id], k).items():
            frame.setdefault(stratum, []).extend((question, i, j) for i, j in found.tolist())
    _check_frame(len(frame))
    sizes = {stratum: len(frame[stratum]) for stratum in sorted(frame, reverse=True)}
    try:
        drawn = allocate(sizes, shares_by_label(sizes), n)
    except ValueError as error:
        raise ValueError(f"--n {n}: {error}") from error
    places, told = [], ["label    ranks   pairs   drawn"]
    for stratum, size in sizes.items():
        count = drawn[stratum]
        places += [(*frame[stratum][i], count / size) for i in draw(size, count, random).tolist()]
        name = {1: "1", 0: "0", -1: "unknown"}[stratum.label]
        told.append(f"{name:7} {f'{stratum.first}-{stratum.last}':>6} {size:7} {count:7}")
    return places, told


def draw_questions(
    questions: Sequence[Question],
    labels: Mapping[str, NDArray[np.int8]],
    n: int,
    k: int,
    random: np.random.Generator,
    *,
    by_group: bool,
) -> tuple[list[Place], list[str]]:
    """All pairs of questions that are drawn by chance; with ``by_group`` as many of each group as its size asks for.

    Questions without a passage or a perspective are not drawn: there is nothing to label, their values are known.

    Raises:
        ValueError: n is too small for two questions of each group.
    """
    from evaluator.sampling import allocate, draw
    from evaluator.sampling_estimates import MIN_QUESTIONS

    frame: dict[str, list[Question]] = {}
    for question in questions:
        if labels[question.question_id].size:
            frame.setdefault(question.group if by_group else "all", []).append(question)
    _check_frame(len(frame))
    sizes = {group: len(found) for group, found in frame.items()}
    total = sum(sizes.values())
    try:
        drawn = allocate(sizes, {group: size / total for group, size in sizes.items()}, n)
    except ValueError as error:
        raise ValueError(f"--n {n}: {error}") from error
    places: list[Place] = []
    for group, size in sizes.items():
        for i in draw(size, drawn[group], random).tolist():
            question, share = frame[group][i], drawn[group] / size
            rows, columns = labels[question.question_id][:k].shape
            places += [(question, row, column, share) for row in range(rows) for column in range(columns)]
    told = [f"{drawn[group]} of {size} questions of group {group}" for group, size in sizes.items()]
    if total < n:
        told.append(f"{n} were asked for: these {total} are all there are")
    if total < len(questions):
        told.append(
            f"{len(questions) - total} questions without passages or perspectives cannot be drawn: they count 0"
        )
    if min(n, total) < MIN_QUESTIONS:
        told.append(
            f"error-aware scores use a sample of questions as such from {MIN_QUESTIONS} questions on: of these "
            f"{min(n, total)} they take only how often the judge errs"
        )
    return places, told


def _check_frame(size: int) -> None:
    if not size:
        raise ValueError("the result has no pair: not one question has both passages and perspectives")


def _labelled(
    experiment: Experiment, run: Run, places: Sequence[Place], random: np.random.Generator
) -> Iterable[LabelledPair]:
    """The pairs in an order that tells nothing, with the texts that the judge saw."""
    from benchmarks.pipeline import passages
    from evaluator.pairs import LabelledPair
    from evaluator.sampling import in_any_order
    from evaluator.types import Pair

    ids = dict.fromkeys(run[question.question_id][i].passage_id for question, i, _, _ in places)
    found = dict(zip(ids, passages(experiment)(list(ids)), strict=True))
    for question, i, j, probability in in_any_order(places, random):
        passage = found[run[question.question_id][i].passage_id]
        yield LabelledPair(Pair(question, question.perspectives[j], passage), None, probability, i + 1)


if __name__ == "__main__":
    sys.exit(main())
