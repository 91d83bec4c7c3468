"""The pairs of a training: read, checked, and some put aside for choosing the best checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.artefacts import content_hash
from corpora.fingerprint import digest
from evaluator.pairs import LabelledPair, labels_of, read_pairs

Texts = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class TrainingPairs:
    """Pairs to learn from, and pairs to choose by.

    Attributes:
        train: Learnt.
        dev: Never learnt.
        files: What they were read from -> SHA-256 of the file.
        put_aside: Whether ``dev`` is a part of the first file.
        shared_questions: Questions that have pairs in both: results on ``dev`` are then too good.
    """

    train: list[LabelledPair]
    dev: list[LabelledPair]
    files: dict[str, str]
    put_aside: bool
    shared_questions: int


def read_training_pairs(pairs: Path, dev: Path | None, dev_pairs: int, seed: int) -> TrainingPairs:
    """The pairs of one file, a part of them put aside, or of two files.

    Raises:
        ValueError: A file or line that cannot be read (see ``evaluator.pairs``); a part without a Yes or without a No;
            pairs that stand in both files.
    """
    given = read_pairs(pairs)
    files = {pairs.name: content_hash(pairs)}
    if dev is None:
        train, chosen = put_aside(given, dev_pairs, seed)
        _check_classes(train, f"{pairs}, without the {len(chosen)} pairs put aside for choosing the best checkpoint,")
        _check_classes(
            chosen, f"the {len(chosen)} pairs of {pairs} put aside for choosing the best checkpoint", dev=True
        )
        return TrainingPairs(train, chosen, files, True, 0)
    chosen = read_pairs(dev)
    files[dev.name if dev.name != pairs.name else str(dev)] = content_hash(dev)
    _check_classes(given, str(pairs))
    _check_classes(chosen, str(dev), dev=True)
    learnt = {_texts(each) for each in given}
    if both := sum(_texts(each) in learnt for each in chosen):
        raise ValueError(
            f"{both} of the {len(chosen)} pairs of --dev {dev} are in --pairs {pairs} too: remove them there"
        )
    questions = {each.pair.question.text for each in given} & {each.pair.question.text for each in chosen}
    return TrainingPairs(given, chosen, files, False, len(questions))


def put_aside(pairs: Sequence[LabelledPair], at_least: int, seed: int) -> tuple[list[LabelledPair], list[LabelledPair]]:
    """(to learn, to choose by): whole questions are put aside, drawn by the seed, until there are enough pairs.

    Raises:
        ValueError: Not even half of the pairs would be left.
    """
    sizes: dict[str, int] = {}
    for each in pairs:
        sizes[each.pair.question.text] = sizes.get(each.pair.question.text, 0) + 1
    aside: set[str] = set()
    count = 0
    for question in sorted(sizes, key=lambda text: digest([seed, text])):
        if count >= at_least:
            break
        aside.add(question)
        count += sizes[question]
    if 2 * count > len(pairs):
        raise ValueError(
            f"{len(pairs)} pairs of {len(sizes)} questions are too few to put whole questions with {at_least} pairs "
            "aside for choosing the best checkpoint: give --dev FILE, or fewer with --set dev_pairs=N"
        )
    train = [each for each in pairs if each.pair.question.text not in aside]
    return train, [each for each in pairs if each.pair.question.text in aside]


def count_positive(pairs: Sequence[LabelledPair]) -> int:
    """How many passages support their perspective."""
    return sum(labels_of(pairs))


def _check_classes(pairs: Sequence[LabelledPair], where: str, *, dev: bool = False) -> None:
    positive = count_positive(pairs)
    if positive and (dev or positive < len(pairs)):
        return
    missing = "positive" if not positive else "negative"
    what = "F1 is undefined" if dev else "nothing can be learnt"
    raise ValueError(f"{where} has no {missing} pair: {what} (label: 1 where the document supports the perspective)")


def _texts(each: LabelledPair) -> Texts:
    pair = each.pair
    return pair.question.text, pair.perspective.text, pair.passage.text, pair.passage.title
