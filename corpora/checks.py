"""What the conformance checks of plug-ins share: their error, and an eye on side effects."""

from __future__ import annotations

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
