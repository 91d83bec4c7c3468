"""Public topics that a detector is trained on: claims, perspectives on them, and texts that do or do not support these.

Read in their public forms: Perspectrum (Chen and others, 2019, https://arxiv.org/abs/1906.03538) as a folder in BEIR's
form (``questions.jsonl``, ``corpus.jsonl``, ``qrels.txt``), ArgKP 2021 (Bar-Haim and others, 2020,
https://arxiv.org/abs/2005.01619) as its table. Texts stand in several places of both, so folds are made of connected
components: topics that share a claim, a perspective, a supporting text, or a subject of ``SUBJECTS`` stay together.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDS = ("train", "dev", "test")
SUBJECTS = (
    "uniform", "nuclear", "gun control|handgun|bear arms", "marijuana|cannabis", "prostitut", "vaccin",
    "home ?schooling", "guantanamo", "affirmative action", "social (media|network)|facebook",
    "death penalty|capital punishment", "private military", "women .*(combat|front line)",
    "assisted suicide|euthanasia", "marriage|same.sex", "celibacy",
    "journalism|newspapers", "vote|voting", "atheis|religion", "vegan|vegetarian", "drinking age|alcohol",
    "bottled water", "corporal|chastise|punish pupils", "tuition|university fees", "net neutrality",
    "monarchy|republic", "olympic", "reality tv", "retire|social security", "flag burning|national anthem",
    "space exploration", "libertarian|austerity|deregulation", "phone", "prison|punishment should fit",
)  # fmt: skip
"""Patterns of subjects that both collections, or several claims of one, are about."""
EXCLUDED = (
    "abortion|contracept|birth control|two children|1-child", r"\banimal", "korea|china|palestin|israel",
    "climate|warming|co2", "refugee|migra|sanctuary|racial profiling", "free to express|publicity|swearing|ban books",
    "content warnings|saying the wrong thing|regulated by the government|wikileaks",
    "any job|job seekers|glass ceiling",
    "exit exams|examinations|more selective|affirmative action", "science can|robot|technolog", "mother nature",
)  # fmt: skip
"""Subjects of the human-labelled pairs of BERDS that these collections have too: no topic about them is used."""


@dataclass(frozen=True, slots=True)
class View:
    """A perspective on a topic.

    Attributes:
        view_id: Unique over both collections.
        text: What it says.
        supporting: Whether it speaks for the topic's claim.
        yes: Texts that support it.
        no: Texts that do not, as annotators said or because they support the other side.
        other: Texts on the same side that support another view; mostly not judged for this one.
    """

    view_id: str
    text: str
    supporting: bool
    yes: tuple[str, ...]
    no: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A claim.

    Attributes:
        topic_id: Unique over both collections.
        source: ``perspectrum`` or ``argkp``.
        claim: As a statement.
        views: At least one.
        sides: Text -> whether it speaks for the claim; texts that do both are left out.
    """

    topic_id: str
    source: str
    claim: str
    views: tuple[View, ...]
    sides: dict[str, bool]


def normalised(text: str) -> str:
    """Words only, in small letters: what two texts have to share to count as the same."""
    return " ".join(re.findall(r"\w+", text.lower()))


def read_perspectrum(folder: Path) -> list[Topic]:
    """The topics of a folder with ``questions.jsonl``, ``corpus.jsonl`` and ``qrels.txt``.

    Raises:
        ValueError: A file is missing, or a line cannot be read.
    """
    passages = {str(row["_id"]): " ".join(str(row["text"]).split()) for row in _json_lines(folder / "corpus.jsonl")}
    support: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, line in enumerate(_text(folder / "qrels.txt").splitlines(), 1):
        fields = line.split()
        if len(fields) != 4 or fields[2] not in passages:
            raise ValueError(f"{folder / 'qrels.txt'}:{number}: expected: question perspective passage label")
        if int(fields[3]) > 0:
            support[fields[0], fields[1]].append(passages[fields[2]])
    topics = []
    for row in _json_lines(folder / "questions.jsonl"):
        name = str(row["question_id"])
        found = [
            (str(each["perspective_id"]), str(each["text"]), each["stance"] == "supporting",
             support[name, str(each["perspective_id"])])
            for each in row["perspectives"]  # type: ignore[attr-defined]
        ]  # fmt: skip
        sides = _sides((text, side) for _, _, side, texts in found for text in texts)
        topics.append(Topic(name, "perspectrum", str(row["question"]).strip(), _views(found, sides), sides))
    return topics


def read_argkp(path: Path) -> list[Topic]:
    """The topics of ``ArgKP-2021_dataset.csv`` (``.gz`` is unpacked).

    Raises:
        ValueError: The file is missing, or lacks a column.
    """
    text = _text(path)
    rows = list(csv.DictReader(text.splitlines(keepends=True)))
    wanted = {"topic", "argument", "key_point", "stance", "label"}
    if not rows or not wanted <= set(rows[0]):
        raise ValueError(f"{path}: expected a table with the columns {', '.join(sorted(wanted))}")
    by_topic: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_topic[row["topic"]].append(row | {"argument": " ".join(row["argument"].split())})
    topics = []
    for number, (claim, its) in enumerate(sorted(by_topic.items())):
        sides = _sides((row["argument"], row["stance"] == "1") for row in its)
        points = sorted({(row["key_point"], row["stance"] == "1") for row in its})
        views = []
        for i, (point, side) in enumerate(points):
            judged = {row["argument"]: row["label"] == "1" for row in its if row["key_point"] == point}
            against = tuple(each for each, other in sides.items() if other != side)
            yes = tuple(each for each, label in judged.items() if label)
            no = tuple(each for each, label in judged.items() if not label)
            views.append(View(f"argkp-{number}.{i}", point, side, yes, no + against, ()))
        topics.append(Topic(f"argkp-{number}", "argkp", claim, tuple(views), sides))
    return topics


def without_excluded(topics: Sequence[Topic]) -> tuple[list[Topic], dict[str, int]]:
    """The topics that are not about ``EXCLUDED``; no text of an excluded one is left. And how much was removed."""
    out = [topic for topic in topics if any(re.search(each, topic.claim.lower()) for each in EXCLUDED)]
    gone = {id(topic) for topic in out}
    texts = {normalised(text) for topic in out for text in topic.sides}
    texts |= {normalised(view.text) for topic in out for view in topic.views}
    kept: list[Topic] = []
    lost_views = lost_texts = 0
    for topic in topics:
        if id(topic) in gone:
            continue
        views = []
        for view in topic.views:
            if normalised(view.text) in texts:
                lost_views += 1
                continue
            parts = [tuple(each for each in part if normalised(each) not in texts)
                     for part in (view.yes, view.no, view.other)]  # fmt: skip
            views.append(View(view.view_id, view.text, view.supporting, *parts))
        sides = {text: side for text, side in topic.sides.items() if normalised(text) not in texts}
        lost_texts += len(topic.sides) - len(sides)
        kept.append(Topic(topic.topic_id, topic.source, topic.claim, tuple(views), sides))
    counts = {
        "excluded_topics_perspectrum": sum(topic.source == "perspectrum" for topic in out),
        "excluded_topics_argkp": sum(topic.source == "argkp" for topic in out),
        "excluded_views": sum(len(topic.views) for topic in out),
        "excluded_support_links": sum(len(view.yes) for topic in out for view in topic.views),
        "views_removed_from_other_topics": lost_views,
        "texts_removed_from_other_topics": lost_texts,
    }
    return kept, counts


def components(topics: Sequence[Topic]) -> list[list[Topic]]:
    """The topics in groups that share nothing: no claim, view, text or subject."""
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        root = key
        while (above := parent.setdefault(root, root)) != root:
            root = above
        parent[key] = root
        return root

    for topic in topics:
        shared = [f"claim {normalised(topic.claim)}"]
        shared += [f"view {normalised(view.text)}" for view in topic.views]
        shared += [f"text {normalised(text)}" for view in topic.views for text in view.yes]
        shared += [f"text {normalised(text)}" for text in topic.sides]
        shared += [f"subject {each}" for each in SUBJECTS if re.search(each, topic.claim.lower())]
        for key in shared:
            parent[find(key)] = find(f"topic {topic.topic_id}")
    groups: dict[str, list[Topic]] = defaultdict(list)
    for topic in topics:
        groups[find(f"topic {topic.topic_id}")].append(topic)
    return list(groups.values())


def split(groups: Sequence[Sequence[Topic]], dev: float, test: float, seed: int) -> dict[str, list[Topic]]:
    """Fold -> topics: whole groups, so that dev and test get about these shares of each collection's topics.

    Groups of more than a twentieth of all topics are trained on.
    """
    total = {source: sum(t.source == source for group in groups for t in group) for source in ("perspectrum", "argkp")}
    folds: dict[str, list[Topic]] = {fold: [] for fold in FOLDS}
    order = sorted(groups, key=lambda group: group[0].topic_id)
    random.Random(seed).shuffle(order)  # noqa: S311 (no secret)
    for group in order:
        fold = "train"
        for name, share in (("test", test), ("dev", dev)):
            fits = all(
                sum(t.source == source for t in (*folds[name], *group)) <= share * count + 0.5
                for source, count in total.items()
                if any(t.source == source for t in group)
            )
            if fits and len(group) * 20 <= sum(total.values()):
                fold = name
                break
        folds[fold] += group
    return folds


def _views(found: Iterable[tuple[str, str, bool, list[str]]], sides: dict[str, bool]) -> tuple[View, ...]:
    views = []
    for name, text, side, support in found:
        yes = tuple(dict.fromkeys(support))
        no = tuple(each for each, other in sides.items() if other != side and each not in yes)
        same = tuple(each for each, other in sides.items() if other == side and each not in yes)
        views.append(View(name, text, side, yes, no, same))
    return tuple(views)


def _sides(found: Iterable[tuple[str, bool]]) -> dict[str, bool]:
    seen: dict[str, set[bool]] = defaultdict(set)
    for text, side in found:
        seen[text].add(side)
    return {text: next(iter(sides)) for text, sides in seen.items() if len(sides) == 1}


def _text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged, or not UTF-8: {error}") from error


def _json_lines(path: Path) -> list[dict[str, object]]:
    found = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: no JSON: {error}") from error
    return found
