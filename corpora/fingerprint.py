"""Fingerprints: what a result depends on, as a short hash that is the same on every machine."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from importlib import metadata
from pathlib import Path

from corpora.artefacts import content_hash

_OURS = {"benchmarks", "corpora", "evaluator", "lm", "rerankers", "retrievers"}
"""This project's packages: here ``version`` says when results change."""


def digest(value: object) -> str:
    """128-bit hash (32 hexadecimal digits) of a JSON value; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def describe(plugin: object, only: Iterable[str] | None = None) -> dict[str, object]:
    """What a plug-in's results depend on, as a JSON value.

    The import path, ``version``, the versions of the libraries in ``packages`` and the constructor's arguments except
    ``runtime_args``; a ``Path`` argument counts by its content, a plug-in argument by its own description. A class that
    is not this project's counts by the source of its module too, so that somebody who writes one may change it freely.

    A ``fingerprint`` of the plug-in's own replaces arguments and source: nobody hashes the 29 GB behind a model's path,
    and nobody pays a judge twice because a comment changed.

    Args:
        plugin: An instance that keeps its constructor's arguments under their own names.
        only: Take only these arguments (an index depends on ``index_args`` alone).

    Raises:
        ValueError: An argument is not kept under its own name, or is nothing that can be described.
    """
    cls = type(plugin)
    described: dict[str, object] = {
        "class": f"{cls.__module__}:{cls.__qualname__}",
        "version": getattr(cls, "version", 1),
    }
    if packages := _declared(cls, "packages"):
        described["packages"] = {name: metadata.version(name) for name in sorted(packages)}
    own = getattr(plugin, "fingerprint", None)
    if isinstance(own, str):
        described["fingerprint"] = own
    elif cls.__module__.partition(".")[0] not in _OURS and (source := _source(cls)):
        described["source"] = source
    if only is None and isinstance(own, str):
        return described
    parameters, skipped = _parameters(cls), _declared(cls, "runtime_args")
    chosen = set(parameters if only is None else only)
    if unknown := sorted(chosen - set(parameters)):
        raise ValueError(
            f"{cls.__name__} has no argument {', '.join(map(repr, unknown))}; its arguments: {', '.join(parameters)}"
        )
    names = [name for name in parameters if name in chosen - skipped]
    return {**described, "arguments": {name: _argument(cls, name, _kept(plugin, name)) for name in names}}


def fingerprint(plugin: object) -> str:
    """The hash of ``describe``: what keys of artefacts and judgements are made of."""
    return digest(describe(plugin))


def index_fingerprint(retriever: object) -> str:
    """The fingerprint of what an index depends on: ``index_args`` where declared, else everything."""
    if getattr(type(retriever), "index_args", None) is None:
        return fingerprint(retriever)
    return digest(describe(retriever, only=_declared(type(retriever), "index_args")))


def _source(cls: type) -> str | None:
    """The hash of the files that define a class and the classes that it is made of; None where there are none."""
    files = set()
    for each in cls.__mro__:
        if each.__module__.partition(".")[0] in _OURS | sys.stdlib_module_names:
            continue
        try:
            file = inspect.getsourcefile(each)
        except (OSError, TypeError):
            continue
        if file and Path(file).is_file():
            files.add(content_hash(Path(file)))
    return digest(sorted(files)) if files else None


def _declared(cls: type, attribute: str) -> set[str]:
    names = getattr(cls, attribute, ())
    if isinstance(names, str):
        raise ValueError(f"{cls.__name__}.{attribute} = {names!r} is one string: write ({names!r},)")
    return set(names)


def _parameters(cls: type) -> list[str]:
    made_by: list[object] = [cls.__init__, cls.__new__]  # type: ignore[misc]
    seen = any(map(inspect.isfunction, made_by))
    plain = made_by == [object.__init__, object.__new__]
    if not seen and not (plain and (cls.__dictoffset__ or hasattr(cls, "__slots__"))):
        # Written in C, as NumPy's numbers are: its state cannot be seen.
        raise ValueError(f"{cls.__name__} has no readable constructor: define a property 'fingerprint'")
    if plain:
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, parameter in inspect.signature(cls).parameters.items() if parameter.kind not in kinds]


def _kept(plugin: object, name: str) -> object:
    try:
        return getattr(plugin, name)
    except AttributeError as error:
        raise ValueError(
            f"{type(plugin).__name__} does not keep its argument {name!r}: "
            f"set self.{name} = {name} in the constructor, so that results can be told apart"
        ) from error


def _argument(cls: type, name: str, value: object) -> object:
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float:{value}"  # JSON has no such numbers
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return f"content:{content_hash(value)}"
    if isinstance(value, list | tuple):
        return [_argument(cls, name, item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _argument(cls, name, item) for key, item in value.items()}
    own = isinstance(getattr(value, "fingerprint", None), str)
    if own or (type(value).__module__ != "builtins" and not callable(value)):
        try:
            return describe(value)
        except ValueError as error:
            raise ValueError(f"{cls.__name__}: argument {name}: {error}") from error
    raise ValueError(f"{cls.__name__}: argument {name}={value!r} has no fingerprint: define a property 'fingerprint'")
