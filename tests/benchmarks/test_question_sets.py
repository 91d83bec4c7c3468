"""BERDS and Perspectrum: from the authors' real dev files, and from small files in the published forms."""

import dataclasses
import http.server
import json
import threading
from collections import Counter

import pytest

from benchmarks import perspectrum
from benchmarks.perspectrum import Perspectrum
from benchmarks.question_sets import ARGUANA, KIALO, OPINIONQA, Arguana, Berds, Kialo, OpinionQA, hub_asset
from benchmarks.tasks import Folder, Task
from corpora import assets
from corpora.jsonl import Jsonl
from corpora.lines import InputError
from corpora.types import Perspective
from tests.conftest import DATA

FILES = DATA / "berds"
data = pytest.mark.skipif(not FILES.is_dir(), reason="needs the public data (see CONTRIBUTING.md)")

# Two test questions and one dev question per set, instead of hundreds.
SMALL = tuple(dataclasses.replace(each, sizes=(2, 1)) for each in (ARGUANA, KIALO, OPINIONQA))


class SmallBerds(Berds):
    sets = SMALL


class SmallKialo(Berds):
    sets = (SMALL[1],)


def row(group, number, n=2):
    return {"question": f"{group} {number}?", "perspectives": [f"{number} view {j}" for j in range(n)], "type": "x"}


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")


def rows(group):
    return [row(group, i, 3 if group == "kialo" and i == 1 else 2) for i in range(3)]


def hub_files(folder):
    for group in ("arguana", "kialo", "opinionqa"):
        lines(folder / f"{group}.test.jsonl", rows(group)[:2])
        lines(folder / f"{group}.dev.jsonl", rows(group)[2:])
    return folder


@pytest.mark.data
@data
def test_the_authors_dev_files():
    task = Berds(FILES)
    assert isinstance(task, Task)
    assert (task.name, task.macro, task.qrels) == ("berds", True, None)
    assert len(task.questions) == 802
    assert sum(len(q.perspectives) for q in task.questions) == 1750
    assert Counter(q.group for q in task.questions) == {"arguana": 250, "kialo": 258, "opinionqa": 294}
    assert {q.split for q in task.questions} == {"dev"}
    ids = [q.question_id for q in task.questions]
    assert ids[:250] == [f"arguana-{i}" for i in range(750, 1000)]
    assert ids[250:508] == [f"kialo-{i}" for i in range(774, 1032)]
    assert ids[508:] == [f"opinionqa-{i}" for i in range(882, 1176)]


@pytest.mark.data
@data
def test_stances_and_texts_of_the_real_questions():
    questions = {q.question_id: q for q in Berds(FILES).questions}
    assert questions["arguana-750"].perspectives == (
        Perspective(
            "0",
            "Banning child performers would effectively protect them from the risks associated with performing.",
            "supporting",
        ),
        Perspective(
            "1",
            "Banning child performers would not effectively protect them from the risks associated with performing.",
            "opposing",
        ),
    )
    stances = Counter((q.group, tuple(p.stance for p in q.perspectives)) for q in questions.values())
    pair = ("supporting", "opposing")
    assert (stances["arguana", pair], stances["kialo", pair], stances["opinionqa", pair]) == (250, 232, 294)
    assert all(p.stance is None for q in questions.values() if len(q.perspectives) > 2 for p in q.perspectives)
    assert max(len(q.perspectives) for q in questions.values()) == 42
    # the text that stands twice in OpinionQA stays two questions
    assert questions["opinionqa-997"].text == questions["opinionqa-1116"].text
    assert len({q.text for q in questions.values() if q.group == "opinionqa"}) == 293


@pytest.mark.data
@data
@pytest.mark.parametrize(
    ("task", "name", "n"), [(Arguana, "arguana", 250), (Kialo, "kialo", 258), (OpinionQA, "opinionqa", 294)]
)
def test_each_set_alone_has_the_same_questions(task, name, n):
    alone = task(FILES)
    assert alone.name == name
    assert len(alone.questions) == n
    assert alone.questions == tuple(q for q in Berds(FILES).questions if q.group == name)


@pytest.mark.data
@data
def test_a_broken_real_file_is_refused_with_its_line(tmp_path):
    name = "arguana_generated_query_exp.dev.jsonl"
    real = [json.loads(line) for line in (FILES / name).open(encoding="utf-8")]
    lines(tmp_path / name, [*real[:3], {**real[3], "perspectives": ["another"]}])
    with pytest.raises(InputError, match=r"dev.jsonl:4: found another perspectives of question 750 than at line 1"):
        Arguana(tmp_path).questions  # noqa: B018
    lines(tmp_path / name, real[:-8])
    with pytest.raises(InputError, match=r"found 249 questions \(there is none with org_id 999\), expected 250"):
        Arguana(tmp_path).questions  # noqa: B018
    lines(tmp_path / name, [{**real[0], "org_id": "12"}])
    with pytest.raises(InputError, match=r"dev.jsonl:1: found org_id = '12', expected a number from 750 to 999"):
        Arguana(tmp_path).questions  # noqa: B018


def test_the_hub_s_files_and_the_single_file_give_the_same_questions(tmp_path):
    two = SmallBerds(hub_files(tmp_path / "two")).questions
    for group in ("arguana", "kialo", "opinionqa"):
        lines(tmp_path / "one" / f"{group}.jsonl", rows(group))
    assert SmallBerds(tmp_path / "one").questions == two
    assert [(q.question_id, q.split, q.text) for q in two[:3]] == [
        ("arguana-0", "test", "arguana 0?"),
        ("arguana-1", "test", "arguana 1?"),
        ("arguana-2", "dev", "arguana 2?"),
    ]
    kialo = [q for q in two if q.group == "kialo"]
    assert [p.stance for p in kialo[1].perspectives] == [None] * 3
    assert [p.stance for p in kialo[0].perspectives] == ["supporting", "opposing"]


def test_one_split_is_enough_and_none_is_refused(tmp_path):
    hub_files(tmp_path)
    (tmp_path / "kialo.test.jsonl").unlink()
    assert [q.question_id for q in SmallKialo(tmp_path).questions] == ["kialo-2"]
    (tmp_path / "kialo.dev.jsonl").unlink()
    with pytest.raises(InputError, match=r"no questions of kialo: expected kialo.test.jsonl, kialo.dev.jsonl"):
        SmallKialo(tmp_path).questions  # noqa: B018
    with pytest.raises(InputError, match="there is no folder"):
        SmallKialo(tmp_path / "absent").questions  # noqa: B018


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([row("arguana", 0)], r"arguana.test.jsonl: found 1 questions, expected 2: is it another edition"),
        ([row("arguana", 0), row("arguana", 1, 3)], r"test.jsonl:2: found 3 perspectives, expected two \(supporting"),
        ([row("arguana", 0), row("arguana", 1, 1)], r"test.jsonl:2: found 1 perspectives"),
        ([row("arguana", 0), {"question": "a?"}], r"test.jsonl:2: found no field 'perspectives', expected a list"),
        ([row("arguana", 0), {"question": " ", "perspectives": ["a", "b"]}], r"test.jsonl:2: found 'question' = ' '"),
        ([row("arguana", 0), {"question": "a?", "perspectives": ["a", 7]}], r"2: found 'perspectives\[1\]' = 7"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, wrong, message):
    lines(hub_files(tmp_path) / "arguana.test.jsonl", wrong)
    with pytest.raises(InputError, match=message) as error:
        SmallBerds(tmp_path).questions  # noqa: B018
    assert "\n" not in str(error.value)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    for name in assets.OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Quiet(*args, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    server.folder, server.url = folder, f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()


def test_the_hub_is_asked_for_pinned_commits(served, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", f"{served.url}/")
    local = hub_files(tmp_path / "local")
    commits = {"arguana": ARGUANA.revision, "kialo": "main", "opinionqa": OPINIONQA.revision}
    names = {"arguana": "Arguana", "kialo": "Kialo", "opinionqa": "OpinionQA"}
    for group, commit in commits.items():
        place = served.folder / "datasets" / "timchen0618" / names[group] / "resolve" / commit
        place.mkdir(parents=True)
        for split in ("test", "dev"):
            (place / f"{group}.{split}.jsonl").write_bytes((local / f"{group}.{split}.jsonl").read_bytes())
    assert SmallBerds().questions == SmallBerds(local).questions
    assert hub_asset(ARGUANA, "dev").licence == "MIT"
    served.shutdown()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert SmallBerds().questions == SmallBerds(local).questions  # from the cache


def test_without_a_network_the_error_is_one_line(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ValueError, match=r"arguana.test.jsonl is not in the cache and HF_HUB_OFFLINE=1 forbids"
    ) as error:
        Berds().questions  # noqa: B018
    assert "\n" not in str(error.value)


ANSWERS = [
    {
        "cId": 1,
        "text": "Trams are better than buses",
        "source": "debatewise",
        "perspectives": [
            {"pids": [9001, 10, 11], "stance_label_3": "SUPPORT", "evidence": [100, 101]},
            {"pids": [12], "stance_label_3": "UNDERMINE", "evidence": []},
            {"pids": [13], "stance_label_3": "UNDERMINE", "evidence": [100]},
            {"pids": [14], "stance_label_3": "not-a-perspective", "evidence": [101]},
        ],
    },
    {
        "cId": 2,
        "text": "One view only",
        "source": "procon",
        "perspectives": [{"pids": [10], "stance_label_3": "SUPPORT", "evidence": [100]}],
    },
]
POOL = [{"pId": i, "text": f"view {i}", "source": "debatewise"} for i in range(10, 15)]
POOL.append({"pId": 9001, "text": "a paraphrase", "source": "paraphrase"})
EVIDENCE = [{"eId": i, "text": f"paragraph {i}", "source": "procon"} for i in (100, 101, 102)]


def published(folder, answers=ANSWERS, pool=POOL, evidence=EVIDENCE, splits=None):
    folder.mkdir(parents=True, exist_ok=True)
    contents = (answers, pool, splits if splits is not None else {"1": "dev", "2": "train"}, evidence)
    for name, content in zip(perspectrum.COMMITS, contents, strict=True):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def check_small(task):
    assert isinstance(task, Task)
    (question,) = task.questions
    assert (question.question_id, question.text, question.group, question.split) == (
        "p1",
        "Trams are better than buses",
        "debatewise",
        "dev",
    )
    assert question.perspectives == (
        Perspective("1-1", "view 10", "supporting"),  # not the paraphrase
        Perspective("1-3", "view 13", "opposing"),
    )
    assert task.qrels == {"p1": {"1-1": {"e100": 1, "e101": 1}, "1-3": {"e100": 1}}}
    assert [(p.passage_id, p.text) for p in Jsonl(task.corpus)] == [
        (f"e{i}", f"paragraph {i}") for i in (100, 101, 102)
    ]


def test_perspectrum_from_a_folder(tmp_path):
    check_small(Perspectrum(published(tmp_path)))
    assert [q.question_id for q in Perspectrum(tmp_path, min_perspectives=1).questions] == ["p1", "p2"]


def test_perspectrum_from_its_repository(served, monkeypatch):
    monkeypatch.setattr(perspectrum, "_REPOSITORY", served.url)
    published(served.folder / "all")
    for name, commit in perspectrum.COMMITS.items():
        place = served.folder / (commit or "HEAD") / "data" / "dataset"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes((served.folder / "all" / name).read_bytes())
    check_small(Perspectrum())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pool": POOL[1:]}, r"answers_v1.0.json:1: found pId 10, expected numbers of the pools"),
        ({"evidence": EVIDENCE[1:]}, r"answers_v1.0.json:1: found eId 100, expected numbers of the pools"),
        ({"evidence": [*EVIDENCE, EVIDENCE[0]]}, r"evidence_pool_v1.0.json:1: found eId 100 twice"),
        ({"splits": {}}, r"found claim 1 without a split"),
        ({"splits": []}, r"dataset_split_v1.0.json: found \[\], expected a split"),
        ({"answers": {}}, r"found {}, expected a list of JSON objects"),
    ],
)
def test_perspectrum_files_that_do_not_fit_are_one_line(tmp_path, change, message):
    with pytest.raises(InputError, match=message) as error:
        Perspectrum(published(tmp_path, **change)).questions  # noqa: B018
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="no such file: expected perspectrum_with_answers"):
        Perspectrum(tmp_path / "absent").questions  # noqa: B018


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "perspectrum").is_dir(), reason="needs the public data (see CONTRIBUTING.md)")
def test_perspectrum_s_real_records_survive_the_published_form(tmp_path):
    """The shared excerpt of the real collection, written in the published form and read back."""
    real = Folder(DATA / "perspectrum")
    pids = {p.perspective_id: i for i, p in enumerate(p for q in real.questions for p in q.perspectives)}
    labels = {"supporting": "SUPPORT", "opposing": "UNDERMINE"}
    answers = [
        {
            "cId": int(q.question_id[1:]),
            "text": q.text,
            "source": "debatewise",
            "perspectives": [
                {
                    "pids": [pids[p.perspective_id]],
                    "stance_label_3": labels[p.stance],
                    "evidence": [int(e[1:]) for e in real.qrels[q.question_id][p.perspective_id]],
                }
                for p in q.perspectives
            ],
        }
        for q in real.questions
    ]
    pool = [{"pId": pids[p.perspective_id], "text": p.text} for q in real.questions for p in q.perspectives]
    evidence = [{"eId": int(p.passage_id[1:]), "text": p.text} for p in Jsonl(DATA / "perspectrum")]
    splits = {q.question_id[1:]: q.split for q in real.questions}
    task = Perspectrum(published(tmp_path, answers, pool, evidence, splits))
    assert len(task.questions) == 222
    assert [(q.question_id, q.text, q.split) for q in task.questions] == [
        (q.question_id, q.text, q.split) for q in real.questions
    ]
    assert [[(p.text, p.stance) for p in q.perspectives] for q in task.questions] == [
        [(p.text, p.stance) for p in q.perspectives] for q in real.questions
    ]
    links = sum(len(passages) for perspectives in task.qrels.values() for passages in perspectives.values())
    assert links == 2692
    assert [p.text for p in Jsonl(task.corpus)] == [p.text for p in Jsonl(DATA / "perspectrum")]
