"""Recipes as YAML files: found by name or path, changed key by key, every mistake named in one line."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast

import yaml

from evaluator.recipe import Recipe

FOLDER = Path(__file__).parent / "recipes"


def load_recipe(name_or_path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe by name (a file of ``recipes/``) or by the path of a YAML file.

    Args:
        name_or_path: ``berds-mistral``, or ``my/recipe.yaml``.
        changes: ``key=value`` strings that replace values; ``lora.r=8`` reaches inside, ``lora=none`` removes.

    Raises:
        ValueError: No such recipe; or keys and values that are none, all of them in one line.
    """
    path = _find(name_or_path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"recipe {path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"recipe {path}: expected keys and values")
    return parse_recipe(_changed(values, changes), f"recipe {path}")


def parse_recipe(values: Mapping[str, object], where: str) -> Recipe:
    """A recipe from the values of a YAML file.

    Raises:
        ValueError: Names ``where``, and all that is wrong.
    """
    problems: list[str] = []
    found = _build(Recipe, values, "", problems)
    if problems:
        raise ValueError(f"{where}: {'; '.join(problems)}")
    try:
        return Recipe(**found)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _find(name_or_path: str | Path) -> Path:
    known = sorted(file.stem for file in FOLDER.glob("*.yaml"))
    if str(name_or_path) in known:
        return FOLDER / f"{name_or_path}.yaml"
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path
    close = difflib.get_close_matches(str(name_or_path), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(f"recipe {name_or_path}: {hint}expected {', '.join(known)} or a YAML file")


def _changed(values: Mapping[str, object], changes: Sequence[str]) -> dict[str, object]:
    changed = dict(values)
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise ValueError(f"--set {change}: expected key=value")
        try:
            value = None if text.lower() == "none" else yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"--set {change}: the value is no YAML") from error
        outer, dot, inner = key.partition(".")
        if not dot:
            changed[outer] = value
            continue
        part = changed.get(outer)
        changed[outer] = {**(part if isinstance(part, dict) else {}), inner: value}
    return changed


def _build(cls: type, values: Mapping[str, object], before: str, problems: list[str]) -> dict[str, Any]:
    """The values of a dataclass's fields; what is wrong is added to ``problems``."""
    hints = typing.get_type_hints(cls)
    names = [each.name for each in fields(cls)]
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            close = difflib.get_close_matches(str(key), names, n=1)
            problems.append(f"no key {before}{key}" + (f" (did you mean {close[0]}?)" if close else ""))
            continue
        try:
            found[key] = _typed(value, hints[key], f"{before}{key}", problems)
        except ValueError as error:
            problems.append(f"{before}{key}: {value!r}: {error}")
    required = [each.name for each in fields(cls) if each.default is each.default_factory and each.name not in values]
    problems += [f"{before}{name} is missing" for name in required]
    return found


def _typed(value: object, to: Any, name: str, problems: list[str]) -> object:
    """A YAML value as a field's type."""
    origin, members = typing.get_origin(to), typing.get_args(to)
    if to is NoneType and value is not None:
        raise ValueError("expected nothing")
    if origin is Literal and value not in members:
        raise ValueError(f"expected {' or '.join(map(str, members))}")
    if origin is None and is_dataclass(to):
        return _nested(cast("type", to), value, name, problems)
    if origin is tuple:
        return _tuple(value, members, name, problems)
    if to is float:
        return _number(value)
    if to in (int, str, bool) and type(value) is not to:
        raise ValueError(f"expected {({int: 'a whole number', str: 'a text', bool: 'true or false'})[to]}")
    if origin in (typing.Union, type(int | None)):
        return _any_of(value, members, name, problems)
    return value


def _any_of(value: object, members: Sequence[Any], name: str, problems: list[str]) -> object:
    expected = []
    for member in members:
        if value is None and member is NoneType:
            return None
        try:
            return _typed(value, member, name, problems)
        except ValueError as error:
            expected += [str(error)] if member is not NoneType else []
    raise ValueError(", or ".join(expected))


def _nested(cls: type, value: object, name: str, problems: list[str]) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"expected keys and values: {', '.join(each.name for each in fields(cls))}")
    wrong: list[str] = []
    found = _build(cls, value, f"{name}.", wrong)
    problems += wrong
    return None if wrong else cls(**found)


def _tuple(value: object, members: Sequence[Any], name: str, problems: list[str]) -> tuple[object, ...]:
    many = members[-1] is Ellipsis
    if not isinstance(value, list | tuple) or (not many and len(value) != len(members)):
        raise ValueError("expected a list" + ("" if many else f" of {len(members)}"))
    return tuple(_typed(each, members[0], name, problems) for each in value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a number")
    try:
        return float(value)  # YAML 1.1 takes 1e-4 for a text
    except ValueError as error:
        raise ValueError("expected a number") from error
