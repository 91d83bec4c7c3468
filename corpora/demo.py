"""The built-in collection: small, written for this project, and there without any download."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from corpora.jsonl import Jsonl


class Demo(Jsonl):
    """The passages of the folder ``corpora/demo``, which also has their questions, qrels and ``task.json``."""

    task: ClassVar[str] = "demo"
    """The task whose questions belong to this corpus."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).parent / "demo")
