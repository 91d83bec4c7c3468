"""Shared by all tests: where the public data lies, and a cache of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("RETRIEVAL_DIVERSITY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture
def data() -> Path:
    """The folder of public data; skips the test where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no public data at {DATA}: set RETRIEVAL_DIVERSITY_DATA (see CONTRIBUTING.md)")
    return DATA


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path_factory.mktemp("cache")))
