"""Names, import paths and arguments become plug-ins; whatever is wrong is said in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from corpora.registry import Registry, convert
from retrievers import Retriever

if TYPE_CHECKING:
    from no_such_package import Imaginary

HERE = __name__


class Plain:
    pass


class Many:
    def __init__(
        self,
        k: int = 3,
        weight: float = 0.5,
        deep: bool = False,
        limit: int | None = None,
        form: Literal["short", "long", 3] = "short",
        path: Path | None = None,
        names: tuple[str, ...] = (),
        sizes: list[int] | None = None,
        lambda_: float = 0.3,
        loose="x",
    ) -> None:
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})


class Needs:
    def __init__(self, path: Path, *rest: str, depth: int, **more: object) -> None:
        self.path, self.depth = path, depth


class Typed:
    """Annotated with a type that exists for type checkers only."""

    def __init__(self, model: Imaginary | None = None, size: int = 1) -> None:
        self.model, self.size = model, size


class FromProtocol(Retriever):
    def index(self, corpus):
        raise NotImplementedError


class Refuses:
    def __init__(self, b: float = 0.5) -> None:
        if b > 1:
            raise ValueError(f"b = {b}: expected at most 1")


def factory(size: int = 2) -> list[int]:
    return [0] * size


NUMBER = 3
REGISTRY: Registry[Any] = Registry(
    "retrievers",
    {
        name: f"{HERE}:{target}"
        for name, target in {
            "plain": "Plain",
            "many": "Many",
            "needs": "Needs",
            "typed": "Typed",
            "protocol": "FromProtocol",
            "refuses": "Refuses",
            "factory": "factory",
            "number": "NUMBER",
            "gone": "Gone",
        }.items()
    },
    extras={"torchy": "dense"},
)


def refusal(name, arguments=()):
    with pytest.raises(ValueError, match="retriever") as caught:
        REGISTRY.create(name, arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_names_and_import_paths():
    assert REGISTRY.load("plain") is Plain
    assert REGISTRY.load(f"{HERE}:Plain") is Plain
    assert REGISTRY.load("pathlib:Path.home") == Path.home  # a dotted attribute
    assert REGISTRY.create("factory", ["size=3"]) == [0, 0, 0]
    assert type(REGISTRY.create("protocol")) is FromProtocol
    assert REGISTRY.names() == sorted(REGISTRY.builtin)


def test_an_unknown_name_shows_close_matches_and_then_all():
    known = "known: factory, gone, many, needs, number, plain, protocol, refuses, typed"
    assert refusal("pain") == (
        f"unknown retriever 'pain': did you mean 'plain'? {known}; or give an import path (module:Class)"
    )
    assert refusal("xyz") == f"unknown retriever 'xyz': {known}; or give an import path (module:Class)"
    empty: Registry[Any] = Registry("corpora", {})
    with pytest.raises(ValueError, match=r"^unknown corpus 'a': no corpus is built in or installed; or give an import"):
        empty.load("a")


@pytest.mark.parametrize("kind, singular", [("tasks", "task"), ("corpora", "corpus"), ("judges", "judge")])
def test_kinds_have_singulars(kind, singular):
    with pytest.raises(ValueError, match=f"^unknown {singular} 'a'"):
        Registry[Any](kind, {}).load("a")


def test_what_cannot_be_loaded():
    assert refusal("gone") == f"retriever 'gone': module '{HERE}' has no 'Gone'"
    assert refusal("number") == f"retriever 'number': '{HERE}:NUMBER' is no class"
    assert refusal("no.such:Thing") == "retriever 'no.such:Thing': there is no module 'no' on the Python path"
    assert "there is no module 'corpora.nothing'" in refusal("corpora.nothing:Thing")
    assert "is broken: importing '' raised" in refusal(":Thing")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported for the length of a test."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return name

    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_missing_dependency_is_named_with_what_to_do(module):
    module("torchy", "import torch_of_tomorrow.nn\nclass Torchy: ...\n")
    registry: Registry[Any] = Registry("retrievers", {"torchy": "torchy:Torchy"}, {"torchy": "dense"})
    with pytest.raises(ValueError, match="needs") as caught:
        registry.load("torchy")
    assert str(caught.value) == "retriever 'torchy' needs 'torch_of_tomorrow': pip install -e '.[dense]'"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert refusal("torchy:Torchy") == (
        "retriever 'torchy:Torchy' needs 'torch_of_tomorrow': pip install torch_of_tomorrow"
    )


def test_a_missing_part_of_the_package_itself_is_no_missing_dependency(module):
    module("parted.plugin", "import parted.other\nclass Plugin: ...\n")
    assert refusal("parted.plugin:Plugin") == (
        "retriever 'parted.plugin:Plugin' is broken: 'parted.plugin' needs 'parted.other', "
        "which its package does not have"
    )


@pytest.mark.parametrize(
    "text, reason",
    [
        ("raise RuntimeError('one\\ntwo')", "RuntimeError: one"),
        ("def f(:\n", "SyntaxError: "),
        ("import math\nmath.nothing", "AttributeError: module 'math' has no attribute 'nothing'"),
        ("import sys\nsys.exit('bye')", "SystemExit: bye"),
        ("from math import nothing", "ImportError: cannot import name 'nothing' from 'math'"),
        ("raise ValueError", "ValueError: "),
    ],
)
def test_a_module_that_fails_is_shown_with_its_reason(module, text, reason):
    module("failing", text + "\n")
    message = refusal("failing:Plugin")
    assert message.startswith(f"retriever 'failing:Plugin' is broken: importing 'failing' raised {reason}")


def test_listing_shows_every_plug_in_and_why_it_cannot_be_loaded():
    lines = {line.name: line for line in REGISTRY.listing()}
    assert list(lines) == REGISTRY.names()
    assert (lines["plain"].source, lines["plain"].problem) == ("built in", None)
    assert lines["gone"].problem == f"retriever 'gone': module '{HERE}' has no 'Gone'"


def test_arguments_are_converted_to_their_declared_types():
    made = REGISTRY.create(
        "many",
        [
            "k=7",
            "weight=1",
            "deep=true",
            "limit=none",
            "form=3",
            "path=~/a/b",
            "names=a,b",
            "sizes=1,2",
            "lambda=0.25",
            "loose=5",
        ],
    )
    assert (made.k, made.weight, made.deep, made.limit, made.form) == (7, 1.0, True, None, 3)
    assert isinstance(made.weight, float)
    assert (made.path, made.names, made.sizes) == (Path.home() / "a" / "b", ("a", "b"), [1, 2])
    assert (made.lambda_, made.loose) == (0.25, "5")
    other = REGISTRY.create("many", ["limit=5", "path=none", "sizes=none", "lambda_=1", "loose=a=b"])
    assert (other.limit, other.path, other.sizes, other.lambda_, other.loose) == (5, None, None, 1.0, "a=b")


def test_values_from_a_mapping_are_taken_as_they_are_and_strings_converted():
    sizes = [1, "2"]
    made = REGISTRY.create("many", {"k": "7", "weight": 2, "sizes": sizes})
    assert (made.k, made.weight) == (7, 2)
    assert made.sizes is sizes


def test_all_wrong_arguments_are_reported_at_once_with_the_valid_ones():
    message = refusal("many", ["wieght=1", "k=two", "deep=maybe", "form=medium", "oops", "=3", "limit=x", "weight=1"])
    assert message == (
        "retriever 'many': 'oops' is not of the form key=value; '=3' is not of the form key=value; "
        "no argument 'wieght' (did you mean 'weight'?); k=two: expected a whole number; "
        "deep=maybe: expected true or false; form=medium: expected one of short, long, 3; "
        "limit=x: expected a whole number or none; valid arguments: k=3, weight=0.5, deep=False, limit=None, "
        "form=short, path=None, names=(), sizes=None, lambda_=0.3, loose=x"
    )


def test_an_argument_given_twice_is_refused_however_it_is_spelt():
    assert "; k is given twice; " in refusal("many", ["k=1", "x=1", "k=2"])
    assert "lambda_ is given twice" in refusal("many", ["lambda=1", "lambda_=2"])
    assert "k is given twice" in refusal("many", ["k=one", "k=2"])


def test_required_arguments_and_none_at_all():
    message = refusal("needs")
    assert message == (
        "retriever 'needs': path is required: give path=...; depth is required: give depth=...; "
        "valid arguments: path, depth"
    )
    assert REGISTRY.create("needs", ["path=a", "depth=2"]).depth == 2
    assert "no argument 'more'" in refusal("needs", ["path=a", "depth=2", "more=1"])
    assert refusal("needs", ["path=a", "depth=x"]).count("depth") == 2  # the wrong one is not called missing as well
    assert refusal("plain", ["a=1"]) == "retriever 'plain': no argument 'a'; valid arguments: none"


def test_a_type_for_type_checkers_only_does_no_harm():
    made = REGISTRY.create("typed", ["model=a", "size=4"])
    assert (made.model, made.size) == ("a", 4)


def test_a_value_that_the_constructor_refuses_is_reported_with_the_plug_in():
    assert refusal("refuses", ["b=2"]) == "retriever 'refuses': b = 2.0: expected at most 1"


@pytest.mark.parametrize(
    "value, to, expected",
    [
        ("a", str, "a"),
        ("a", Any, "a"),
        ("-3", int, -3),
        ("1e-3", float, 0.001),
        ("No", bool, False),
        ("1", bool, True),
        ("null", int | None, None),
        ("3", int | str, 3),
        ("three", int | str, "three"),
        ("3", str | int, 3),
        ("2.5", int | float, 2.5),
        ("none", str, "none"),
        ("none", str | None, None),
        ("a", Literal["a", "b"] | None, "a"),
        ("", tuple[str, ...], ()),
        ("1,2", tuple[int, ...], (1, 2)),
        ("1.5", tuple[float, float], (1.5,)),
        ("a,b", tuple, ("a", "b")),
        ("a,b", Sequence[str], ("a", "b")),
        ("1,2", list[int], [1, 2]),
        ("a,b", list, ["a", "b"]),
        ("x,y", tuple[Literal["x", "y"], ...], ("x", "y")),
    ],
)
def test_convert(value, to, expected):
    converted = convert(value, to)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    "value, to, message",
    [
        ("1.5", int, "expected a whole number"),
        ("", float, "expected a number"),
        ("2", bool, "expected true or false"),
        ("c", Literal["a", "b"], "expected one of a, b"),
        ("c", Literal["a", "b"] | None, "expected one of a, b or none"),
        ("x", int | bool, "expected a whole number or expected true or false"),
        ("1,x", tuple[int, ...], "expected a whole number"),
    ],
)
def test_convert_says_what_was_expected(value, to, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        convert(value, to)


def test_a_name_may_be_written_with_hyphens():
    registry = Registry("retrievers", {"rank_bm25": "retrievers.rank_bm25:RankBM25"})
    assert registry.load("rank-bm25") is registry.load("rank_bm25")


def test_the_extra_is_named_however_the_name_is_written(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needs_more.py").write_text("import a_package_that_nobody_has\n")
    registry = Registry("retrievers", {"two_words": "needs_more:Two"}, extras={"two_words": "more"})
    for name in ("two_words", "two-words"):
        with pytest.raises(ValueError, match=r"needs 'a_package_that_nobody_has': pip install -e '\.\[more\]'$"):
            registry.load(name)


def test_a_name_or_a_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.yaml").touch()
    for text, expected in (
        ("support", "support"),
        ("folder", "folder"),
        ("file.yaml", Path("file.yaml")),
        ("./folder", Path("folder")),
        ("owner/name", Path("owner/name")),
    ):
        assert convert(text, str | Path) == expected
        assert convert(text, str | Path | None) == expected
    assert convert("none", str | Path | None) is None
