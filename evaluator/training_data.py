"""Makes the pairs of the detector ``small`` from public data.

    python -m evaluator.training_data --perspectrum FOLDER --argkp FILE --output FOLDER

writes ``train.tsv``, ``dev.tsv``, ``test_perspectrum.tsv``, ``test_argkp.tsv`` (the form of ``evaluator.pairs``) and
``report.json``: the same bytes for the same data and seed. Folds share no topic, perspective or text, and no topic is
one of the human-labelled pairs of BERDS (``evaluator.training_topics``). The column ``group`` says what kind a pair is:

* ``view``: a perspective with reasons, and a text that was written for or against it; ``claim``: the bare claim or its
  opposite, which is how most perspectives of BERDS are worded; ``neutral``: a passage about the claim without a side;
  ``retrieved``: what BM25 finds for the perspective in other topics, as the tail of a real top 5.

Train and dev are made of passages such as a web search finds (``evaluator.training_passages``), dev with the share of
positives that people saw in real results (17 %; 91 of the 542 pairs of BERDS). The tests keep the texts as published.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s

from corpora.artefacts import content_hash, write_atomic
from corpora.fingerprint import digest
from corpora.types import Passage, Perspective, Question, Stance
from evaluator.pairs import LabelledPair, write_pairs
from evaluator.training_passages import counterclaim, page, sentences, title
from evaluator.training_topics import Topic, View, components, read_argkp, read_perspectrum, split, without_excluded
from evaluator.types import Pair

PREVALENCE = 0.17
DEV_MIX = {"neutral": 0.25, "retrieved": 0.30, "view": 0.25, "claim": 0.20}
"""Of the negatives of dev: an assumption about what a top 5 holds beside support, as nobody has counted it."""


class Maker:
    """Makes the pairs of one fold.

    Args:
        topics: Of this fold only.
        web: Whether texts become web-like passages.
        rng: Decides everything that is left to chance.
    """

    def __init__(self, topics: Sequence[Topic], web: bool, rng: random.Random) -> None:
        self.topics, self.web, self.rng = topics, web, rng
        self.texts = [(text, topic) for topic in topics for text in topic.sides]
        self._near = {topic.topic_id: number for number, its in enumerate(components(topics)) for topic in its}
        self._index = bm25s.BM25()
        self._index.index(bm25s.tokenize([text for text, _ in self.texts], stopwords="en", show_progress=False),
                          show_progress=False)  # fmt: skip

    def pairs(self, topic: Topic) -> Iterator[LabelledPair]:
        """All pairs of a topic, positives and negatives of every kind."""
        for view in topic.views:
            yield from self._view(topic, view)
        yield from self._claim(topic)

    def _view(self, topic: Topic, view: View) -> Iterator[LabelledPair]:
        short = topic.source == "argkp"
        for text in view.yes:
            yield self._pair(topic, view.text, view.supporting, text, True, "view")
        count = max(1, len(view.yes))
        for text in self._some(view.no, count + (count > 3 and short) * count // 2):
            yield self._pair(topic, view.text, view.supporting, text, False, "view")
        for text in self._some(view.other, (count + 1) // 2):
            yield self._pair(topic, view.text, view.supporting, text, False, "view")
        for text in self._some(self._retrieved(view.text, topic, 10), max(1, count // (8 if short else 1))):
            yield self._pair(topic, view.text, view.supporting, text, False, "retrieved")
        if self.web:
            for _ in range(max(1, count // (12 if short else 3))):
                yield self._pair(topic, view.text, view.supporting, "", False, "neutral")

    def _claim(self, topic: Topic) -> Iterator[LabelledPair]:
        """The claim and its opposite, each against texts of both sides, off-topic ones and neutral passages."""
        opposite = counterclaim(topic.claim, self.rng)
        if opposite is None or topic.claim.split()[0] in ("Should", "Does", "Is"):
            return
        texts = self._some(tuple(topic.sides), 200)
        for text in texts:
            side = topic.sides[text]
            for claimed in (True, False):
                said = topic.claim if claimed else counterclaim(topic.claim, self.rng) or opposite
                yield self._pair(topic, self._worded(said, claimed), claimed, text, side == claimed, "claim")
        for claimed, said in ((True, topic.claim), (False, opposite)):
            for text in self._some(self._retrieved(said, topic, 20), 1 + len(texts) // 15):
                yield self._pair(topic, self._worded(said, claimed), claimed, text, False, "retrieved")
            for _ in range((1 + len(texts) // 10) if self.web else 0):
                yield self._pair(topic, self._worded(said, claimed), claimed, "", False, "neutral")

    def _pair(self, topic: Topic, said: str, supporting: bool, text: str, label: bool, group: str) -> LabelledPair:
        document, heading = self._passage(topic, text, label) if self.web else (text, "")
        stance: Stance = "supporting" if supporting else "opposing"
        view = Perspective(f"{topic.topic_id}.{digest([said])[:8]}", said, stance)
        question = Question(topic.topic_id, topic.claim, group=group)
        passage = Passage(f"d-{digest([heading, document])[:12]}", document, heading)
        return LabelledPair(Pair(question, view, passage), label)

    def _passage(self, topic: Topic, text: str, label: bool) -> tuple[str, str]:
        """A text as a web page's window; nothing that could support the same view comes beside a negative one."""
        rng = self.rng
        words = text.split()
        if text and (rng.random() < (0.35 if topic.source == "perspectrum" else 0.65) or len(words) > 90):
            whole = sentences(text)
            start = rng.randrange(2) if len(whole) > 3 and rng.random() < 0.3 else 0
            return " ".join(" ".join(whole[start:]).split()[:110]), title(topic.claim, rng)
        others = [each for each, its in rng.sample(self.texts, min(6, len(self.texts))) if self._far(its, topic)]
        near = self._retrieved(topic.claim, topic, 8)
        fillers = [*self._some(near, rng.choice((0, 1, 1))), *others[: rng.choice((0, 1, 1, 2))]]
        return page(text, topic.claim, fillers, rng)

    def _retrieved(self, said: str, topic: Topic, depth: int) -> tuple[str, ...]:
        """The best texts of other topics, best first."""
        tokens = bm25s.tokenize([said], stopwords="en", show_progress=False)
        wanted = min(len(self.texts), depth + 600)
        rows, scores = self._index.retrieve(tokens, k=wanted, show_progress=False)
        found = (self.texts[int(row)] for row, score in zip(rows[0], scores[0], strict=True) if score > 0)
        return tuple(text for text, its in found if self._far(its, topic))[:depth]

    def _far(self, one: Topic, other: Topic) -> bool:
        return self._near[one.topic_id] != self._near[other.topic_id]

    def _worded(self, said: str, claimed: bool) -> str:
        said = said[:1].upper() + said[1:].rstrip(".")
        draw = self.rng.random()
        if draw < 0.15:
            return f"{'Yes' if claimed else 'No'}, {said[:1].lower() + said[1:]}."
        return f"{said}." if draw < 0.6 else said

    def _some(self, texts: Sequence[str], count: int) -> list[str]:
        return self.rng.sample(list(texts), min(count, len(texts)))


def make_train(topics: Sequence[Topic], per_topic: int, rng: random.Random) -> list[LabelledPair]:
    """Pairs for training; at most ``per_topic`` of a topic, so that a few large ones do not outweigh the others."""
    maker = Maker(topics, True, rng)
    found: list[LabelledPair] = []
    for topic in topics:
        its = list(maker.pairs(topic))
        found += rng.sample(its, min(per_topic, len(its)))
    rng.shuffle(found)
    return found


def make_dev(topics: Sequence[Topic], positives: int, rng: random.Random) -> list[LabelledPair]:
    """Pairs with the prevalence of a real top 5, half of the positives from each collection."""
    maker = Maker(topics, True, rng)
    yes: dict[str, list[LabelledPair]] = {"perspectrum": [], "argkp": []}
    no: dict[str, list[LabelledPair]] = {name: [] for name in DEV_MIX}
    for topic in topics:
        its = list(maker.pairs(topic))
        rng.shuffle(its)
        for each in its[:250]:
            (yes[topic.source] if each.label else no[each.pair.question.group]).append(each)
    found = [pair for part in yes.values() for pair in rng.sample(part, min(len(part), positives // 2))]
    count = round(len(found) * (1 - PREVALENCE) / PREVALENCE)
    for name, share in DEV_MIX.items():
        found += rng.sample(no[name], min(len(no[name]), round(share * count)))
    rng.shuffle(found)
    return found


def make_test(topics: Sequence[Topic], source: str, per_topic: int, rng: random.Random) -> list[LabelledPair]:
    """Pairs with texts as published."""
    its = [topic for topic in topics if topic.source == source]
    maker = Maker(its, False, rng)
    found: list[LabelledPair] = []
    for topic in its:
        pairs = list(maker.pairs(topic))
        found += rng.sample(pairs, min(per_topic, len(pairs)))
    return found


def make_all(perspectrum: Path, argkp: Path, seed: int = 0) -> tuple[dict[str, list[LabelledPair]], dict[str, object]]:
    """File name -> pairs, and the report."""
    topics, removed = without_excluded(read_perspectrum(perspectrum) + read_argkp(argkp))
    groups = components(topics)
    folds = split(groups, dev=0.12, test=0.2, seed=seed)
    files = {
        "train": make_train(folds["train"], 1100, random.Random(seed)),  # noqa: S311 (no secret)
        "dev": make_dev(folds["dev"], 300, random.Random(seed + 1)),  # noqa: S311
        "test_perspectrum": make_test(folds["test"], "perspectrum", 100, random.Random(seed + 2)),  # noqa: S311
        "test_argkp": make_test(folds["test"], "argkp", 400, random.Random(seed + 3)),  # noqa: S311
    }
    report: dict[str, object] = {"seed": seed, "removed": removed, "components": len(groups)}
    report["largest_component"] = max(map(len, groups))
    report["topics"] = {fold: dict(sorted(Counter(t.source for t in its).items())) for fold, its in folds.items()}
    report["pairs"] = {name: _counts(pairs) for name, pairs in files.items()}
    return files, report


def _counts(pairs: Sequence[LabelledPair]) -> dict[str, object]:
    kinds = Counter(each.pair.question.group for each in pairs)
    positive = sum(bool(each.label) for each in pairs)
    return {"pairs": len(pairs), "positive": positive, **{f"group_{name}": kinds[name] for name in sorted(kinds)}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, or 2 for a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m evaluator.training_data", description="Make the pairs of 'small'.")
    parser.add_argument("--perspectrum", type=Path, required=True, metavar="FOLDER", help="questions, corpus and qrels")
    parser.add_argument("--argkp", type=Path, required=True, metavar="FILE", help="ArgKP-2021_dataset.csv(.gz)")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where the four files go")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    flags = parser.parse_args(arguments)
    try:
        files, report = make_all(flags.perspectrum, flags.argkp, flags.seed)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    flags.output.mkdir(parents=True, exist_ok=True)
    hashes = {}
    for name, pairs in files.items():
        write_pairs(flags.output / f"{name}.tsv", pairs)
        hashes[f"{name}.tsv"] = content_hash(flags.output / f"{name}.tsv")
    report["sha256"] = hashes
    text = json.dumps(report, indent=1, sort_keys=True) + "\n"
    write_atomic(flags.output / "report.json", text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
