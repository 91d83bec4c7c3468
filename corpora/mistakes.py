"""A user's mistake, which ends in one line, told apart from a bug, which keeps its traceback."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path

PACKAGES = ("benchmarks", "corpora", "evaluator", "lm", "rerankers", "retrievers")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def is_mistake(error: Exception) -> bool:
    """Whether an error is the user's: a ValueError that a ``raise`` of this project raised, or an unusable file.

    What a library or a plug-in of somebody else raises from within is a bug, and so is a slip of ours, such as int("").
    """
    if isinstance(error, OSError):
        return error.filename is not None or error.errno in _FULL
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, ValueError) or not frames:
        return False
    root = str(Path(__file__).resolve().parent.parent)
    ours = tuple(os.path.join(root, name) + os.sep for name in PACKAGES)
    return os.path.abspath(frames[-1].filename).startswith(ours) and (frames[-1].line or "").startswith("raise")
