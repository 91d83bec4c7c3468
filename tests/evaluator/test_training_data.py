"""Training pairs from public data: what is read, which folds, what no fold may share, and the same bytes every time."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from pathlib import Path

import pytest

from evaluator.pairs import LabelledPair, read_pairs
from evaluator.training_data import Maker, main
from evaluator.training_passages import (
    BOILERPLATE,
    NEUTRAL,
    WORDS,
    counterclaim,
    neutral_sentences,
    page,
    sentences,
    subject,
)
from evaluator.training_topics import (
    EXCLUDED,
    Topic,
    View,
    components,
    normalised,
    read_argkp,
    read_perspectrum,
    split,
    without_excluded,
)


def perspectrum(folder: Path, topics: dict[str, tuple[str, list[tuple[str, str, list[str]]]]]) -> Path:
    """Writes topics: id -> (claim, [(view, stance, texts)])."""
    folder.mkdir(exist_ok=True)
    texts = sorted({text for _, views in topics.values() for _, _, its in views for text in its})
    ids = {text: f"e{i}" for i, text in enumerate(texts)}
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": ids[t], "title": "", "text": t}) + "\n" for t in texts)
    )
    questions, qrels = [], []
    for name, (claim, views) in topics.items():
        perspectives = [
            {"perspective_id": f"{name}_{i}", "text": text, "stance": stance}
            for i, (text, stance, _) in enumerate(views)
        ]
        questions.append({"question_id": name, "question": claim, "split": "train", "perspectives": perspectives})
        qrels += [f"{name} {name}_{i} {ids[t]} 1" for i, (_, _, its) in enumerate(views) for t in its]
    (folder / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    (folder / "qrels.txt").write_text("\n".join(qrels) + "\n")
    return folder


def argkp(path: Path, rows: list[tuple[str, str, str, int, int]]) -> Path:
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["topic", "argument", "key_point", "stance", "label"])
        writer.writerows(rows)
    return path


def many(n: int) -> dict[str, tuple[str, list[tuple[str, str, list[str]]]]]:
    """n claims about different things, two views with two texts each."""
    return {
        f"p{i}": (
            f"Item{i} should be sold",
            [
                (f"Item{i} helps traders", "supporting", [f"Traders earn from item{i} today.", f"Shops like item{i}."]),
                (f"Item{i} harms buyers", "opposing", [f"Buyers regret item{i} soon.", f"Many returned item{i}."]),
            ],
        )
        for i in range(n)
    }


ROWS = [
    (f"We should ban item{k}", f"argument {i} {'for' if side > 0 else 'against'} item{k}",
     f"point {p} {side} on item{k}", side, int(i % 2 == p))
    for k in range(100, 110) for side in (1, -1) for i in range(4) for p in range(2)
]  # fmt: skip


def test_perspectrum_topics_have_sides_and_texts_of_both_sides_are_left_out(tmp_path: Path) -> None:
    folder = perspectrum(
        tmp_path / "p",
        {"p1": ("X should go", [("a", "supporting", ["one", "both"]), ("b", "supporting", ["two"]),
                                ("c", "opposing", ["three", "both"])])},
    )  # fmt: skip
    (topic,) = read_perspectrum(folder)
    assert topic.sides == {"one": True, "two": True, "three": False}
    a, b, c = topic.views
    assert (a.yes, a.no, a.other) == (("one", "both"), ("three",), ("two",))
    assert (b.yes, b.no, b.other) == (("two",), ("three",), ("one",))
    assert (c.yes, set(c.no), c.other, c.supporting) == (("three", "both"), {"one", "two"}, (), False)


def test_argkp_topics_take_unmatched_and_opposing_arguments_for_no(tmp_path: Path) -> None:
    path = argkp(
        tmp_path / "a.csv.gz",
        [("We should ban x", "good  reason", "safer", 1, 1), ("We should ban x", "other reason", "safer", 1, 0),
         ("We should ban x", "bad idea", "freedom", -1, 1)],
    )  # fmt: skip
    (topic,) = read_argkp(path)
    views = {view.text: view for view in topic.views}
    assert views["safer"].yes == ("good reason",)
    assert views["safer"].no == ("other reason", "bad idea")
    assert views["freedom"].supporting is False
    assert set(views["freedom"].no) == {"good reason", "other reason"}


def topic(name: str, claim: str, view: str = "", text: str = "") -> Topic:
    texts = (text or f"text of {name}",)
    views = (View(f"{name}.0", view or f"view of {name}", True, texts, (), ()),)
    return Topic(name, "perspectrum", claim, views, dict.fromkeys(texts, True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (topic("a", "A claim."), topic("b", "a  CLAIM")),
        (topic("a", "A", view="It is right"), topic("b", "B", view="it is right!")),
        (topic("a", "A", text="Same words, twice."), topic("b", "B", text="same words twice")),
        (topic("a", "School uniforms should go"), topic("b", "We should abandon the use of school uniform")),
    ],
)
def test_topics_that_share_anything_stay_together(one: Topic, other: Topic) -> None:
    alone = topic("c", "Third")
    groups = sorted(sorted(each.topic_id for each in group) for group in components([one, alone, other]))
    assert groups == [["a", "b"], ["c"]]


def test_sharing_goes_through_third_topics() -> None:
    chain = [topic("a", "A", view="x"), topic("b", "B", view="x", text="t"), topic("c", "C", text="t")]
    assert len(components([chain[0], chain[2], chain[1]])) == 1


def test_excluded_topics_go_and_their_texts_with_them() -> None:
    gone = topic("a", "Abortion should be legal", view="my body", text="shared text")
    kept = Topic(
        "b", "perspectrum", "Doctors should decide",
        (View("b.0", "My body!", True, ("x",), (), ()),
         View("b.1", "skill", True, ("Shared text", "y"), ("shared text",), ())),
        {"Shared text": True, "x": True, "y": True},
    )  # fmt: skip
    (left,), counts = without_excluded([gone, kept])
    assert [view.text for view in left.views] == ["skill"]
    assert left.views[0].yes == ("y",)
    assert left.views[0].no == ()
    assert left.sides == {"x": True, "y": True}
    assert counts["excluded_topics_perspectrum"] == 1
    assert counts["views_removed_from_other_topics"] == 1
    assert counts["texts_removed_from_other_topics"] == 1


def test_folds_are_whole_groups_and_large_ones_are_trained_on() -> None:
    groups = [[topic(f"{i}", str(i))] for i in range(90)] + [[topic(f"x{i}", f"x{i}") for i in range(10)]]
    folds = split(groups, dev=0.1, test=0.2, seed=1)
    assert sorted(t.topic_id for its in folds.values() for t in its) == sorted(t.topic_id for g in groups for t in g)
    assert len(folds["dev"]) == 10
    assert len(folds["test"]) == 20
    assert {f"x{i}" for i in range(10)} <= {t.topic_id for t in folds["train"]}
    assert folds != split(groups, dev=0.1, test=0.2, seed=2)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("Uniforms should be worn", {"Uniforms should not be worn"}),
        ("Gambling should be legal", {"Gambling should be illegal", "Gambling should not be legal"}),
        ("We should abolish zoos", {"We should keep zoos", "We should not abolish zoos"}),
        ("Why zoos?", {None}),
    ],
)
def test_counterclaims_say_the_opposite(claim: str, expected: set[str | None]) -> None:
    found = {counterclaim(claim, random.Random(seed)) for seed in range(40)}
    assert found == expected


def test_neutral_sentences_name_the_claim_and_read_as_sentences() -> None:
    found = neutral_sentences("We should ban cars in towns", 100, random.Random(0))
    assert len(found) == len(set(found)) == len(NEUTRAL)
    assert all(each[0].isupper() and "{" not in each for each in found)
    assert any("whether we should ban cars in towns" in each for each in found)
    assert subject("We should ban cars in towns") == "ban cars in towns"


def test_a_page_holds_the_whole_core_among_other_sentences_and_is_no_longer_than_a_window() -> None:
    core, fillers = "Cars make noise at night", ["One filler. Two fillers here! Three?", "Another text. It goes on."]
    pages = [page(core, "We should ban cars", fillers, random.Random(seed))[0] for seed in range(200)]
    assert all(core in each for each in pages)
    assert all(len(each.split()) <= WORDS for each in pages)
    assert sum(each.startswith(core) for each in pages) < 120
    assert sum("filler" in each or "Another" in each for each in pages) > 150
    long = page("word " * 500, "We should ban cars", fillers, random.Random(0))[0]
    assert long.split() == ["word"] * WORDS
    assert all(page("", "We should ban cars", [], random.Random(seed))[0].strip() for seed in range(100))


def test_sentences_are_cut_where_they_are_too_long() -> None:
    assert sentences("It is 3.5 m. Yes! no? ok. 'Quoted'") == ["It is 3.5 m.", "Yes! no? ok.", "'Quoted'"]
    assert [len(each.split()) for each in sentences("w " * 90)] == [40, 40, 10]


def built(tmp_path: Path, name: str, *more: str) -> Path:
    p, a = perspectrum(tmp_path / "p", many(30)), argkp(tmp_path / "a.csv.gz", ROWS)
    assert main(["--perspectrum", str(p), "--argkp", str(a), "--output", str(tmp_path / name), *more]) == 0
    return tmp_path / name


FILES = ("train", "dev", "test_perspectrum", "test_argkp")


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = built(tmp_path, "one"), built(tmp_path, "two")
    other = built(tmp_path, "three", "--seed", "1")
    for name in ("report.json", *(f"{each}.tsv" for each in FILES)):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert (one / "train.tsv").read_bytes() != (other / "train.tsv").read_bytes()


def test_labels_are_what_the_annotation_says(tmp_path: Path) -> None:
    """A text supports a view if and only if it was linked to it, and a claim if it stands on the claim's side."""
    folder = built(tmp_path, "out")
    topics = read_perspectrum(tmp_path / "p") + read_argkp(tmp_path / "a.csv.gz")
    by_id = {each.topic_id: each for each in topics}
    kinds = set()
    for name in FILES:
        for each in read_pairs(folder / f"{name}.tsv"):
            its, kind = by_id[each.pair.question.question_id], each.pair.question.group
            kinds.add(kind)
            held = [text for text in its.sides if text in each.pair.passage.text]
            if kind in ("neutral", "retrieved"):
                assert each.label is False
                assert not held
            elif kind == "claim":
                sides = {its.sides[text] for text in held}
                assert len(sides) == 1
                assert each.label is (sides == {each.pair.perspective.stance == "supporting"})
            else:
                (view,) = (view for view in its.views if view.text == each.pair.perspective.text)
                assert any(text in view.yes for text in held) is each.label
    assert kinds == {"view", "claim", "neutral", "retrieved"}


def test_tests_keep_the_published_texts(tmp_path: Path) -> None:
    folder = built(tmp_path, "out")
    topics = read_perspectrum(tmp_path / "p") + read_argkp(tmp_path / "a.csv.gz")
    texts = {text for each in topics for text in each.sides}
    for name in ("test_perspectrum", "test_argkp"):
        assert {each.pair.passage.text for each in read_pairs(folder / f"{name}.tsv")} <= texts


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p, a = perspectrum(tmp_path / "p", many(3)), tmp_path / "a.csv"
    flags = ["--perspectrum", str(p), "--argkp", str(a), "--output", str(tmp_path / "out")]
    for content, expected in ((None, "no such file"), ("topic,argument\nx,y\n", "columns"), (b"\xff\xfe", "UTF-8")):
        if content is not None:
            a.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert main(flags) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert expected in error
        assert error.count("\n") == 1
    (p / "qrels.txt").write_text("p0 p0_0 nowhere 1\n")
    assert main(flags) == 2
    assert "qrels.txt:1" in capsys.readouterr().err


def shared(one: list[LabelledPair], other: list[LabelledPair]) -> set[str]:
    def texts(pairs: list[LabelledPair]) -> set[str]:
        return {
            normalised(t) for e in pairs for t in (e.pair.question.text, e.pair.perspective.text, e.pair.passage.text)
        }

    return texts(one) & texts(other) - {normalised(text) for text in BOILERPLATE}


@pytest.mark.data
@pytest.mark.slow
def test_real_folds_share_nothing_and_hold_no_excluded_topic(data: Path, tmp_path: Path) -> None:
    source = data / "argkp2021" / "ArgKP-2021_dataset.csv.gz"
    flags = ["--perspectrum", str(data / "perspectrum"), "--argkp", str(source), "--output", str(tmp_path)]
    assert main(flags) == 0
    files = {name: read_pairs(tmp_path / f"{name}.tsv") for name in FILES}
    folds = [files["train"], files["dev"], files["test_perspectrum"] + files["test_argkp"]]
    for i, one in enumerate(folds):
        for other in folds[i + 1 :]:
            assert shared(one, other) == set()
    published = {name: set() for name in ("train", "rest")}
    topics = read_perspectrum(data / "perspectrum") + read_argkp(source)
    trained = {each.pair.question.question_id for each in files["train"]}
    for each in without_excluded(topics)[0]:
        published["train" if each.topic_id in trained else "rest"] |= {normalised(text) for text in each.sides}
    assert published["train"] & published["rest"] == set()
    for pairs in files.values():
        assert not [e for e in pairs if any(re.search(p, e.pair.question.text.lower()) for p in EXCLUDED)]
    assert sum(bool(each.label) for each in files["dev"]) / len(files["dev"]) == pytest.approx(0.19, abs=0.03)


def test_maker_never_takes_a_related_topic_for_off_topic() -> None:
    related = [topic("a", "Zoos should close", text="animals suffer in zoos"),
               topic("b", "Zoos should close", text="zoos make animals suffer")]  # fmt: skip
    far = topic("c", "Cars should go", text="cars suffer rust in zoos")
    maker = Maker([*related, far], True, random.Random(0))
    assert maker._retrieved("zoos suffer", related[0], 5) == ("cars suffer rust in zoos",)
