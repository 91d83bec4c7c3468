"""What the conformance checks of plug-ins share: their error, and an eye on side effects."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable


class CheckError(ValueError):
    """A plug-in breaks a promise; the message says in one line which one and how."""


class _Watching(threading.local):
    """What this thread does while it is watched; None: not watched."""

    events: list[str] | None = None


_watching = _Watching()
_SIDE_EFFECTS = (
    "open",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
)


def arguments_of(plugin: object) -> dict[str, object]:
    """The constructor's arguments, as a plug-in keeps them.

    Raises:
        CheckError: Some are not kept under their own names.
    """
    cls = type(plugin)
    if cls.__init__ is object.__init__:
        return {}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [name for name, each in inspect.signature(cls).parameters.items() if each.kind not in several]
    lost = [name for name in names if not hasattr(plugin, name)]
    if lost:
        raise CheckError(f"constructor arguments are not kept under their own names: {', '.join(lost)}")
    return {name: getattr(plugin, name) for name in names}


def check_kept_arguments(plugin: object) -> None:
    """The constructor keeps its arguments under their own names, and nothing else happens in it."""
    cls, arguments = type(plugin), arguments_of(plugin)
    copy = cls(**arguments)
    for name, value in arguments.items():
        if getattr(copy, name) is not value and getattr(copy, name) != value:
            raise CheckError(f"argument {name}={value!r} is kept as {getattr(copy, name)!r}: keep what was given")
    events = watched(lambda: cls(**arguments))
    if events:
        raise CheckError(f"the constructor does {events[0]}: load on first use instead")


def watched(call: Callable[[], object]) -> list[str]:
    """What a call does to files, network and processes; imports have happened in an earlier call."""
    if not hasattr(_audit, "installed"):
        sys.addaudithook(_audit)
        _audit.installed = True  # type: ignore[attr-defined]
    events: list[str] = []
    _watching.events = events
    try:
        call()
    finally:
        _watching.events = None
    return events


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in _SIDE_EFFECTS and _watching.events is not None:
        _watching.events.append(f"{event} {arguments[0]!r}")
