"""A name, an entry point or an import path becomes a plug-in class, and its arguments become an instance.

Built-in names stand in a table of strings in each plug-in folder's ``__init__``, so that nothing is imported before
it is chosen. Other packages add names through entry points (``retrieval_diversity.retrievers`` and so on); while
writing a plug-in, ``my.module:MyRetriever`` does as well.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of ``--list``: a plug-in's name, where it comes from, its arguments, and why it cannot be loaded."""

    name: str
    source: str
    arguments: str = ""
    problem: str | None = None


class Registry(Generic[T]):
    """The plug-ins of one kind.

    Args:
        kind: Plural name, as in the entry-point group: ``retrievers``, ``corpora``, ``tasks`` ...
        builtin: name -> ``module:Class`` of this project.
        extras: name -> the optional dependency group that a built-in plug-in needs.
    """

    def __init__(self, kind: str, builtin: Mapping[str, str], extras: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.builtin = dict(builtin)
        self.extras = dict(extras or {})
        self.singular = {"corpora": "corpus"}.get(kind, kind.removesuffix("s"))

    def load(self, name: str) -> Callable[..., T]:
        """The class of a name or of an import path ``module:Class``.

        Raises:
            ValueError: Nothing of that name; two plug-ins of that name; or the plug-in cannot be imported.
        """
        if ":" in name:
            return self._import(name, name)
        found = self._found(name) or self._found(name.replace("-", "_"))  # sentence-transformer is known too
        if not found:
            raise ValueError(self._unknown(name))
        if len(found) > 1:
            raise ValueError(
                f"two {self.kind} are called {name!r}: {' and '.join(found.values())}; "
                "uninstall one, or choose by import path (module:Class)"
            )
        return self._import(name, next(iter(found)))

    def create(self, name: str, arguments: Mapping[str, object] | Sequence[str] = ()) -> T:
        """An instance of the plug-in, made with checked arguments.

        Args:
            name: As for ``load``.
            arguments: A mapping, or ``key=value`` strings from the command line, which are converted to the types
                that the constructor declares.

        Raises:
            ValueError: As ``load``; or wrong arguments, all of them named in one line together with the valid ones.
        """
        plugin = self.load(name)
        values = self._arguments(name, plugin, arguments)
        try:
            return plugin(**values)
        except ValueError as error:  # the constructor refuses a value, wherever the plug-in comes from
            raise ValueError(f"{self.singular} {name!r}: {error}") from error

    def names(self) -> list[str]:
        """All names, sorted: built in and from installed packages."""
        return sorted({*self.builtin, *(point.name for point in self._points())})

    def listing(self) -> list[Listed]:
        """Every plug-in with its source and, where it cannot be loaded, the reason."""
        lines = []
        for name in self.names():
            source = " and ".join(self._found(name).values())
            try:
                arguments = " ".join(_signature(each) for each in _named(self.load(name)).values())
                lines.append(Listed(name, source, arguments))
            except ValueError as error:
                lines.append(Listed(name, source, problem=str(error)))
        return lines

    def _points(self) -> Iterable[EntryPoint]:
        return entry_points(group=f"retrieval_diversity.{self.kind}")

    def _found(self, name: str) -> dict[str, str]:
        """``module:Class`` -> who brings it, for every plug-in of this name."""
        found = {self.builtin[name]: "built in"} if name in self.builtin else {}
        for point in self._points():
            if point.name == name:
                package = point.dist.name if point.dist else "an unknown package"
                target = point.value.partition("[")[0].strip()  # extras may follow: module:Class [extra]
                found.setdefault(target, f"{target} of package {package}")
        return found

    def _import(self, name: str, target: str) -> Callable[..., T]:
        module, _, attribute = target.partition(":")
        try:
            plugin = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(self._not_importable(name, module, error)) from error
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ValueError(f"{self.singular} {name!r} is broken: importing {module!r} raised {problem}") from error
        try:
            for part in attribute.split("."):
                plugin = getattr(plugin, part)
        except AttributeError as error:
            raise ValueError(f"{self.singular} {name!r}: module {module!r} has no {attribute!r}") from error
        if not callable(plugin):
            raise ValueError(f"{self.singular} {name!r}: {target!r} is no class")
        return typing.cast("Callable[..., T]", plugin)

    def _not_importable(self, name: str, module: str, error: ModuleNotFoundError) -> str:
        missing = error.name or "?"
        if module == missing or module.startswith(missing + "."):
            return f"{self.singular} {name!r}: there is no module {missing!r} on the Python path"
        package = missing.partition(".")[0]
        if package == module.partition(".")[0]:
            return f"{self.singular} {name!r} is broken: {module!r} needs {missing!r}, which its package does not have"
        extra = self.extras.get(name.replace("-", "_"))
        install = f"pip install -e '.[{extra}]'" if extra else f"pip install {package}"
        return f"{self.singular} {name!r} needs {package!r}: {install}"

    def _unknown(self, name: str) -> str:
        names = self.names()
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        known = f"known: {', '.join(names)}" if names else f"no {self.singular} is built in or installed"
        return f"unknown {self.singular} {name!r}: {hint}{known}; or give an import path (module:Class)"

    def parameters(self, name: str) -> tuple[str, ...]:
        """The names of the arguments that a plug-in takes."""
        return tuple(_named(typing.cast("Callable[..., object]", self.load(name))))

    def _arguments(
        self, name: str, plugin: Callable[..., T], arguments: Mapping[str, object] | Sequence[str]
    ) -> dict[str, object]:
        parameters = _named(plugin)
        hints = _hints(plugin)
        given, problems = _pairs(arguments)
        values: dict[str, object] = {}
        seen: set[str] = set()
        for key, value in given:
            field = key if key in parameters else f"{key}_"  # lambda=0.5 sets lambda_
            if field not in parameters:
                close = difflib.get_close_matches(key, parameters, n=1)
                problems.append(f"no argument {key!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
            elif field in seen:
                problems.append(f"{field} is given twice")
            elif isinstance(value, str):
                seen.add(field)
                try:
                    values[field] = convert(value, hints.get(field, str))
                except ValueError as error:
                    problems.append(f"{key}={value}: {error}")
            else:
                seen.add(field)
                values[field] = value
        required = [p.name for p in parameters.values() if p.default is p.empty and p.name not in seen]
        problems += [f"{field} is required: give {field}=..." for field in required]
        if problems:
            valid = ", ".join(_signature(parameter) for parameter in parameters.values()) or "none"
            raise ValueError(f"{self.singular} {name!r}: {'; '.join(problems)}; valid arguments: {valid}")
        return values


def _named(plugin: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The arguments that can be given by name; what only ``**kwargs`` takes leaves no trace in a fingerprint."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(plugin).parameters
    except (TypeError, ValueError) as error:  # some classes that are written in C
        raise ValueError(f"the arguments of {plugin!r} cannot be read: is it a plug-in class?") from error
    return {name: each for name, each in parameters.items() if each.kind not in several}


def _hints(plugin: Callable[..., object]) -> dict[str, Any]:
    """The types of the arguments; a type that exists for type checkers only is left out."""
    function = plugin.__init__ if inspect.isclass(plugin) else plugin
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        hints = {}
        for name, annotation in getattr(function, "__annotations__", {}).items():
            with contextlib.suppress(NameError, TypeError):
                one = types.SimpleNamespace(__annotations__={name: annotation})
                hints.update(typing.get_type_hints(one, getattr(function, "__globals__", {})))
        return hints


def _pairs(arguments: Mapping[str, object] | Sequence[str]) -> tuple[list[tuple[str, object]], list[str]]:
    if isinstance(arguments, Mapping):
        return list(arguments.items()), []
    pairs: list[tuple[str, object]] = []
    problems = []
    for item in arguments:
        key, equals, value = item.partition("=")
        if not equals or not key:
            problems.append(f"{item!r} is not of the form key=value")
        else:
            pairs.append((key.replace("-", "_"), value))
    return pairs, problems


def _signature(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default}"


def convert(value: str, to: Any) -> object:
    """A command-line string as the annotated type: str, int, float, bool, Path, None, Literal, unions, tuples, lists.

    Raises:
        ValueError: The string is not of that type; the message says what was expected.
    """
    origin = typing.get_origin(to)
    if origin in (Union, types.UnionType):
        return _convert_union(value, typing.get_args(to))
    if origin is Literal:
        for choice in typing.get_args(to):
            if value == str(choice):
                return typing.cast(object, choice)
        raise ValueError(f"expected one of {', '.join(map(str, typing.get_args(to)))}")
    if (origin or to) in (tuple, list, Sequence):
        item = (typing.get_args(to) or (str,))[0]
        parts = [convert(part, item) for part in value.split(",") if part]
        return parts if (origin or to) is list else tuple(parts)
    if to is bool:
        if value.lower() in ("true", "false", "yes", "no", "1", "0"):
            return value.lower() in ("true", "yes", "1")
        raise ValueError("expected true or false")
    if to in (int, float):
        try:
            return to(value)
        except ValueError as error:
            raise ValueError(f"expected {'a whole number' if to is int else 'a number'}") from error
    return Path(value).expanduser() if to is Path else value


def _convert_union(value: str, members: Sequence[Any]) -> object:
    if type(None) in members and value.lower() in ("none", "null"):
        return None
    if {str, Path} <= set(members):  # a name or a place: a place where it looks like one, or is one
        looks = "/" in value or value.startswith("~") or Path(value).is_file()
        return convert(value, Path if looks else str)
    expected = []
    # str takes anything, so it is tried last
    for member in sorted((m for m in members if m is not type(None)), key=lambda m: m is str):
        try:
            return convert(value, member)
        except ValueError as error:
            expected.append(str(error))
    raise ValueError(" or ".join(expected) + (" or none" if type(None) in members else ""))
