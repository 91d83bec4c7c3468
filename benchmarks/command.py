"""What the command lines share: exit codes, mistakes in one line, warnings in one line, interruption, the cache.

Light on purpose: ``--help`` must answer at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from corpora.artefacts import CACHE_VARIABLE
from corpora.mistakes import is_mistake

OK, MISTAKE, INTERRUPTED = 0, 2, 130


def ended(work: Callable[[], object]) -> int:
    """Do the work of a command; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""
    with _one_line_warnings():
        try:
            work()
        except KeyboardInterrupt:
            say("interrupted: the same command goes on where this one stopped")
            return INTERRUPTED
        except (ValueError, OSError) as error:
            if not is_mistake(error):
                raise
            say(f"error: {' '.join(str(error).split())}")
            return MISTAKE
    return OK


@contextlib.contextmanager
def cache_at(folder: str | None) -> Iterator[None]:
    """Keeps the cache at ``--cache`` for a while; child processes see it too.

    What a plug-in does meanwhile cannot end the program: its SystemExit becomes a RuntimeError.
    """
    before = os.environ.get(CACHE_VARIABLE)
    if folder is not None:
        os.environ[CACHE_VARIABLE] = str(Path(folder).expanduser().resolve())
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"a plug-in ended the program with sys.exit({error.code!r})") from error
    finally:
        if folder is not None:
            os.environ.pop(CACHE_VARIABLE, None)
            if before is not None:
                os.environ[CACHE_VARIABLE] = before


def say(text: str) -> None:
    """Prints a line to standard error."""
    print(text, file=sys.stderr)


def stop(*_: object) -> None:
    """A scheduler's SIGTERM ends a run as Ctrl-C does: what was judged is published first."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        say(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield
