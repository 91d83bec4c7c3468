"""Fingerprints: what a result depends on changes them, and nothing else does."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import importlib
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corpora.fingerprint import describe, digest, fingerprint, index_fingerprint
from retrievers.bm25 import BM25

HERE = __name__


class Plugin:
    runtime_args = ("batch_size",)
    index_args = ("stem",)

    def __init__(self, stem: str = "english", k1: float = 1.2, batch_size: int = 8) -> None:
        self.stem, self.k1, self.batch_size = stem, k1, batch_size


class Holder:
    def __init__(self, value: object = None) -> None:
        self.value = value


class Own:
    def __init__(self, model: str = "a", path: Path | None = None) -> None:
        self.model, self.path = model, path

    @property
    def fingerprint(self) -> str:
        return f"{self.model}@commit"


@dataclasses.dataclass(frozen=True)
class Nested:
    size: int = 2


class Form(enum.Enum):
    SHORT = 1
    LONG = 2


def test_the_fingerprint_is_a_hash_that_can_be_worked_out_by_hand():
    files = f'["{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"]'
    source = hashlib.blake2b(files.encode(), digest_size=16).hexdigest()
    text = f'{{"arguments":{{"k1":1.2,"stem":"english"}},"class":"{HERE}:Plugin","source":"{source}","version":1}}'
    assert fingerprint(Plugin()) == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert digest({"b": [1, None, True], "a": "é"}) == (
        hashlib.blake2b('{"a":"é","b":[1,null,true]}'.encode(), digest_size=16).hexdigest()
    )


def test_digest_does_not_depend_on_the_order_of_keys_but_on_that_of_lists():
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest([1, 2]) != digest([2, 1])
    assert digest("1") != digest(1)
    assert digest("\ud800") != digest("?")  # half a surrogate pair, as broken texts have


def test_the_fingerprint_is_the_same_in_another_process():
    code = "from corpora.fingerprint import fingerprint; from retrievers.bm25 import BM25; print(fingerprint(BM25()))"
    root = Path(__file__).resolve().parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={"PYTHONHASHSEED": s},
        ).stdout
        for s in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 32


def test_arguments_count_and_runtime_arguments_do_not():
    first = fingerprint(Plugin())
    assert fingerprint(Plugin(batch_size=99)) == first
    assert len({first, fingerprint(Plugin(k1=0.9)), fingerprint(Plugin(stem="german"))}) == 3
    assert describe(Plugin(batch_size=99))["arguments"] == {"stem": "english", "k1": 1.2}


def test_class_and_version_count():
    def raised(version):
        return type("Plugin", (Plugin,), {"version": version, "__module__": HERE})()

    assert fingerprint(raised(1)) == fingerprint(Plugin())
    assert fingerprint(raised(2)) != fingerprint(Plugin())
    assert index_fingerprint(raised(2)) != index_fingerprint(Plugin())
    renamed = type("Other", (Plugin,), {"__module__": HERE})()
    assert fingerprint(renamed) != fingerprint(Plugin())


def test_a_path_counts_by_its_content(tmp_path):
    first, second = tmp_path / "first.txt", tmp_path / "deep" / "second.txt"
    first.write_text("one")
    before = fingerprint(Holder(first))
    assert describe(Holder(first))["arguments"] == {"value": f"content:{hashlib.sha256(b'one').hexdigest()}"}
    second.parent.mkdir()
    first.rename(second)
    assert fingerprint(Holder(second)) == before
    second.write_text("two")
    assert fingerprint(Holder(second)) != before
    assert fingerprint(Holder(str(second))) != fingerprint(Holder(second))  # a plain string is only a string
    with pytest.raises(FileNotFoundError):
        fingerprint(Holder(first))


def test_a_folder_counts_by_its_names_and_contents(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("1")
    before = fingerprint(Holder(tmp_path / "model"))
    (tmp_path / "model").rename(tmp_path / "moved")
    assert fingerprint(Holder(tmp_path / "moved")) == before
    (tmp_path / "moved" / "weights").rename(tmp_path / "moved" / "other")
    assert fingerprint(Holder(tmp_path / "moved")) != before


def test_a_fingerprint_of_its_own_wins(tmp_path):
    own = Own("m", tmp_path / "is not there and is not read")
    assert fingerprint(own) == digest(describe(own))
    assert describe(own) == {"class": f"{HERE}:Own", "version": 1, "fingerprint": "m@commit"}


def test_class_and_version_count_beside_a_fingerprint_of_its_own():
    class Other(Own):
        pass

    class Raised(Own):
        version = 2

    assert len({fingerprint(each("m")) for each in (Own, Other, Raised)}) == 3
    assert index_fingerprint(Own("m")) != index_fingerprint(Own("n"))


def test_a_strangers_source_counts_until_he_vouches_for_himself(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "strange_source.py"
    module.write_text("class Mine:\n    pass\nclass Vouched:\n    fingerprint = 'v1'\n")
    strange = importlib.import_module("strange_source")
    mine, vouched = fingerprint(strange.Mine()), fingerprint(strange.Vouched())
    module.write_text(module.read_text() + "# changed\n")
    assert fingerprint(strange.Mine()) != mine
    assert fingerprint(strange.Vouched()) == vouched
    heir = tmp_path / "strange_heir.py"
    heir.write_text("from strange_source import Mine\nclass Heir(Mine):\n    pass\n")
    inherited = importlib.import_module("strange_heir").Heir()
    before = fingerprint(inherited)
    module.write_text(module.read_text() + "# changed again\n")
    assert fingerprint(inherited) != before, "what is inherited counts too"
    assert "source" not in describe(BM25())  # this project's own classes have a version


def test_versions_of_declared_packages_count():
    class Uses(Plugin):
        packages = ("numpy",)

    assert describe(Uses())["packages"] == {"numpy": np.__version__}
    assert describe(BM25())["packages"].keys() == {"PyStemmer", "bm25s"}


def test_an_index_depends_on_index_args_alone():
    first = index_fingerprint(Plugin())
    assert index_fingerprint(Plugin(k1=0.9, batch_size=2)) == first
    assert index_fingerprint(Plugin(stem="german")) != first
    assert describe(Plugin(), only=("stem",))["arguments"] == {"stem": "english"}
    assert describe(Plugin(), only=iter(["k1", "stem"]))["arguments"] == {"stem": "english", "k1": 1.2}
    assert index_fingerprint(Nested()) == fingerprint(Nested())


def test_misspelt_index_args_are_refused_because_indexes_would_be_mixed():
    class Misspelt(Plugin):
        index_args = ("stemmer",)

    class Single(Plugin):
        index_args = "stem"

    class Runtime(Plugin):
        runtime_args = "batch_size"

    with pytest.raises(ValueError, match=r"^Misspelt has no argument 'stemmer'; its arguments: stem, k1, batch_size$"):
        index_fingerprint(Misspelt())
    with pytest.raises(ValueError, match=r"^Single.index_args = 'stem' is one string: write \('stem',\)$"):
        index_fingerprint(Single())
    with pytest.raises(ValueError, match=r"^Runtime.runtime_args = 'batch_size' is one string"):
        fingerprint(Runtime())


def test_plug_ins_as_arguments_count_by_their_own_description():
    held = describe(Holder(Plugin(batch_size=1)))["arguments"]
    assert held == {"value": describe(Plugin())}
    assert describe(Plugin())["arguments"] == {"stem": "english", "k1": 1.2}
    assert fingerprint(Holder(Plugin(batch_size=1))) == fingerprint(Holder(Plugin(batch_size=2)))
    assert fingerprint(Holder(Plugin(k1=0.1))) != fingerprint(Holder(Plugin(k1=0.2)))
    assert fingerprint(Holder(Own("a"))) != fingerprint(Holder(Own("b")))
    assert describe(Holder([Nested(1), (Nested(2),)]))["arguments"]["value"][1][0]["arguments"] == {"size": 2}


def test_a_plug_in_that_can_be_called_counts_by_its_own_fingerprint():
    class Model(Own):
        def __call__(self):
            raise NotImplementedError

    assert fingerprint(Holder(Model("a"))) != fingerprint(Holder(Model("b")))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        1.5,
        "a",
        "é\ud800",
        (),
        [1, "2"],
        {"b": 1, "a": [2]},
        Form.SHORT,
        math.inf,
        math.nan,
        np.float64(1),
    ],
    ids=repr,
)
def test_plain_values_have_stable_fingerprints(value):
    assert fingerprint(Holder(value)) == fingerprint(Holder(value))
    assert fingerprint(Holder(value)) != fingerprint(Holder("something else"))


def test_different_values_have_different_fingerprints():
    values = [None, True, 1, 1.5, "1", (), [1], {"a": 1}, Form.SHORT, Form.LONG, math.inf, -math.inf, math.nan]
    assert len({fingerprint(Holder(value)) for value in values}) == len(values)
    assert fingerprint(Holder((1, 2))) == fingerprint(Holder([1, 2]))  # as JSON has them


@pytest.mark.parametrize("value", [len, lambda: 1, {1, 2}, b"bytes", object()], ids=lambda value: type(value).__name__)
def test_what_cannot_be_described_is_refused(value):
    with pytest.raises(ValueError, match=r"^Holder: argument value=.* has no fingerprint: define a property"):
        fingerprint(Holder(value))


def test_an_argument_not_kept_under_its_own_name_is_refused():
    class Renames:
        def __init__(self, k: int = 1) -> None:
            self._k = k

    with pytest.raises(ValueError, match=r"^Renames does not keep its argument 'k': set self.k = k in the constructor"):
        fingerprint(Renames())


def test_plug_ins_without_arguments():
    class Nothing:
        pass

    class Open:
        def __init__(self, *args: object, size: int = 1, **more: object) -> None:
            self.size = size

    assert describe(Nothing())["arguments"] == {}
    assert describe(Open(size=2, other=3))["arguments"] == {"size": 2}


@pytest.mark.parametrize(
    "value",
    [np.int64(3), np.arange(3), re.compile("a"), datetime.date(2024, 1, 2)],
    ids=lambda value: type(value).__name__,
)
def test_objects_whose_state_cannot_be_seen_are_refused(value):
    with pytest.raises(ValueError, match=r"^Holder: argument value: \w+ has no readable constructor: define"):
        fingerprint(Holder(value))
    assert describe(Own(value))["fingerprint"] == f"{value}@commit"  # the plug-in may say itself what it depends on


def test_a_wrong_plug_in_as_an_argument_is_named_with_the_argument():
    with pytest.raises(ValueError, match=r"^Holder: argument value: Holder: argument value=b'b' has no fingerprint"):
        fingerprint(Holder(Holder(b"b")))
