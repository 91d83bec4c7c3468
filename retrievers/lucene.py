"""BM25 and RM3 on Lucene, through pyserini: an index of any corpus, one made by others, or a prebuilt one by name.

Lin, J. et al. (2021): Pyserini: A Python Toolkit for Reproducible Information Retrieval Research with Sparse and Dense
Representations. https://doi.org/10.1145/3404835.3463238, https://github.com/castorini/pyserini (1.6: Lucene 9.9, which
reads Lucene 8). RM3: Abdul-Jaleel, N. et al. (2004): UMass at TREC 2004, https://trec.nist.gov/pubs/trec13/.

The defaults are pyserini's: k1 0.9, b 0.4, English words without stop words, stemmed by Porter's rules.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import shutil
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pyserini  # noqa: F401  light; that the extra is absent has to be known when this plug-in is chosen
from tqdm import tqdm

from corpora.artefacts import artefact
from corpora.base import Corpus
from corpora.fingerprint import digest, index_fingerprint
from corpora.java import java_class, java_message, start_java
from corpora.lucene_index import lucene_fingerprint, open_lucene_index, passage_id
from retrievers._lucene_search import Feedback, LuceneIndex
from retrievers._prebuilt import find_prebuilt, prebuilt_folder

# fmt: off
LANGUAGES = (
    "ar", "bn", "da", "de", "en", "es", "fa", "fi", "fr", "ha", "hi", "hu", "id", "it", "ja",
    "ko", "nl", "no", "pl", "pt", "ru", "so", "sv", "sw", "te", "th", "tr", "uk", "yo", "zh",
)
# fmt: on
STEMMERS = ("porter", "krovetz")
CHECKED = 32
"""So many identifiers of an opened index are looked up in the corpus."""
MAX_CHARACTERS = 20_000_000
"""Anserini's JSON reader drops longer texts without a word."""
_BLANKS = "".join(map(chr, range(33)))
"""What Java's trim removes."""


class Lucene:
    """Lexical search by Lucene.

    ``k1``, ``b`` and the arguments of RM3 change no index. Of an opened index, ``stemmer``, ``stop_words``,
    ``language`` and ``pretokenized`` have to be those that it was made with.

    Args:
        prebuilt: Folder of a Lucene 8 or 9 index of the corpus, or the name of one of pyserini's, for example
            ``wikipedia-dpr-100w``; None: build one.
        k1: How slowly a repeated word saturates.
        b: How much long passages are held back, 0 to 1.
        rm3: Expand each query with words of its best passages, and search again.
        fb_terms: How many words RM3 adds.
        fb_docs: From how many passages.
        original_query_weight: Share of the query's own words, 0 to 1.
        stemmer: ``porter`` or ``krovetz``; None: no stemming.
        stop_words: ``english``: Lucene's short list; None: keep every word.
        language: Two letters; another than ``en`` brings its own stemmer and stop words.
        pretokenized: The texts are words with blanks between them, to be taken as they stand.
        title: Search the title too, as if it stood in front of the text.
        threads: For building, and how many queries are searched at a time; the rankings do not depend on it.
        heap_gb: Largest heap of Java; None: a quarter of the memory. The first use in a process decides.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("threads", "heap_gb")
    index_args: ClassVar[tuple[str, ...]] = ("stemmer", "stop_words", "language", "pretokenized", "title")

    def __init__(
        self,
        prebuilt: str | None = None,
        k1: float = 0.9,
        b: float = 0.4,
        rm3: bool = False,
        fb_terms: int = 10,
        fb_docs: int = 10,
        original_query_weight: float = 0.5,
        stemmer: str | None = "porter",
        stop_words: str | None = "english",
        language: str = "en",
        pretokenized: bool = False,
        title: bool = True,
        threads: int = 1,
        heap_gb: float | None = None,
    ) -> None:
        self.prebuilt = prebuilt
        self.k1 = k1
        self.b = b
        self.rm3 = rm3
        self.fb_terms = fb_terms
        self.fb_docs = fb_docs
        self.original_query_weight = original_query_weight
        self.stemmer = stemmer
        self.stop_words = stop_words
        self.language = language
        self.pretokenized = pretokenized
        self.title = title
        self.threads = threads
        self.heap_gb = heap_gb

    @property
    def fingerprint(self) -> str | None:
        """With an index made already: a hash of its commit, or its name, and of the arguments; else None (they do)."""
        if self.prebuilt is None:
            return None
        folder = Path(self.prebuilt).expanduser()
        identity = lucene_fingerprint(folder) if folder.is_dir() else self.prebuilt
        names = set(inspect.signature(type(self)).parameters) - {"prebuilt", *self.runtime_args}
        arguments = {name: getattr(self, name) for name in names}
        return digest({"class": "Lucene", "version": self.version, "arguments": arguments, "index": identity})

    def prefetch(self) -> None:
        """Downloads a prebuilt index that is asked for by name."""
        if self.prebuilt is not None and not Path(self.prebuilt).expanduser().is_dir():
            start_java(self.heap_gb)
            prebuilt_folder(find_prebuilt(self.prebuilt, "sparse"))

    def index(self, corpus: Corpus) -> LuceneIndex:
        """The index of the corpus: built where no artefact holds it, or the one named, checked against the corpus.

        Raises:
            ValueError: An argument has no such value, an index cannot be opened, or is of another corpus.
        """
        self._check_arguments()
        start_java(self.heap_gb)
        if self.prebuilt is None:
            reader = open_lucene_index(self._built(corpus))
        else:
            folder = Path(self.prebuilt).expanduser()
            if not folder.is_dir():
                folder = prebuilt_folder(find_prebuilt(self.prebuilt, "sparse"))
            reader = open_lucene_index(folder)
            _check_corpus(reader, corpus, self.prebuilt)
        feedback = Feedback(self.fb_terms, self.fb_docs, self.original_query_weight) if self.rm3 else None
        if feedback and reader.maxDoc() and not _has_vectors(reader):
            raise ValueError(f"rm3 needs an index with document vectors (-storeDocvectors): {self.prebuilt} has none")
        return LuceneIndex(reader, self._analyzer(), self.k1, self.b, feedback, self.threads, self.prebuilt is None)

    def _check_arguments(self) -> None:
        if self.stemmer not in (None, *STEMMERS):
            raise ValueError(f"stemmer {self.stemmer!r} is unknown: expected {' or '.join(STEMMERS)}, or None")
        if self.stop_words not in (None, "english"):
            raise ValueError(f"stop_words {self.stop_words!r} is unknown: expected english, or None")
        if self.language not in LANGUAGES:
            raise ValueError(f"language {self.language!r} is unknown: expected one of {', '.join(LANGUAGES)}")
        if self.rm3 and (self.fb_terms < 1 or self.fb_docs < 1 or not 0 <= self.original_query_weight <= 1):
            raise ValueError("rm3 needs fb_terms and fb_docs of at least 1 and original_query_weight from 0 to 1")

    def _analyzer(self) -> Any:
        if self.pretokenized:
            return java_class("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
        if self.language != "en":
            return _language_analyzer(self.language)
        english = java_class("io.anserini.analysis.DefaultEnglishAnalyzer")
        return english.fromArguments(self.stemmer or "none", self.stop_words is None, None)

    def _built(self, corpus: Corpus) -> Path:
        version = importlib.metadata.version("pyserini")
        key = digest({"retriever": index_fingerprint(self), "pyserini": version, "corpus": corpus.fingerprint})
        return artefact("index", key, lambda folder: self._build(corpus, folder))

    def _build(self, corpus: Corpus, folder: Path) -> None:
        lines = folder / "lines"  # inside, so that it goes with the folder when the process is killed
        lines.mkdir()
        n = _write_lines(corpus, lines, max(1, self.threads), self.title)
        arguments = ["-collection", "JsonCollection", "-input", str(lines), "-index", str(folder), "-quiet"]
        arguments += ["-threads", str(max(1, self.threads)), "-memoryBuffer", str(_buffer_mb()), "-storeDocvectors"]
        arguments += ["-language", self.language, "-stemmer", self.stemmer or "none"]
        arguments += ["-keepStopwords"] if self.stop_words is None else []
        arguments += ["-pretokenized"] if self.pretokenized else []
        try:
            java_class("io.anserini.index.IndexCollection").main(arguments)
        except Exception as error:
            raise ValueError(f"Lucene cannot index this corpus: {java_message(error)}") from error
        shutil.rmtree(lines)
        reader = open_lucene_index(folder)
        found = reader.numDocs()
        reader.close()
        if found != n:
            raise ValueError(f"Lucene indexed {found:,} of {n:,} passages: try again with more memory (heap_gb=...)")


def _write_lines(corpus: Corpus, folder: Path, files: int, title: bool) -> int:
    """Writes the corpus as Anserini reads it, over several files; returns the number of passages with any text."""
    n = 0
    with ExitStack() as stack:
        outputs = [stack.enter_context((folder / f"{i}.jsonl").open("w", encoding="utf-8")) for i in range(files)]
        quiet = not sys.stderr.isatty()
        for passage in tqdm(corpus, desc="lucene: passages", total=len(corpus), disable=quiet):
            text = f"{passage.title} {passage.text}" if title and passage.title else passage.text
            if not text.strip(_BLANKS):
                continue  # Anserini leaves them out as well; they match nothing
            if len(text) > MAX_CHARACTERS:
                raise ValueError(
                    f"passage {passage.passage_id!r} has {len(text):,} characters, Lucene's reader takes at most "
                    f"{MAX_CHARACTERS:,}: cut it into passages"
                )
            outputs[n % files].write(json.dumps({"id": passage.passage_id, "contents": text}) + "\n")
            n += 1
    return n


def _buffer_mb() -> int:
    """How much Lucene gathers in memory before it writes: Anserini's 4 GB, or less where the heap is small."""
    heap_mb = java_class("java.lang.Runtime").getRuntime().maxMemory() >> 20
    return int(max(16, min(4096, heap_mb // 4)))


def _language_analyzer(language: str) -> Any:
    """The analyzer that Anserini uses for a language, both for passages and for queries."""
    analyzers = java_class("io.anserini.analysis.AnalyzerMap")
    if analyzers.analyzerMap.containsKey(language):
        return analyzers.getLanguageSpecificAnalyzer(language)
    return java_class("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()


def _has_vectors(reader: Any) -> bool:
    field = java_class("org.apache.lucene.index.FieldInfos").getMergedFieldInfos(reader).fieldInfo("contents")
    return field is not None and bool(field.hasVectors())


def _check_corpus(reader: Any, corpus: Corpus, name: str) -> None:
    """Refuses an index of another corpus, as far as its size and some of its identifiers tell."""
    found, rows = reader.numDocs(), reader.maxDoc()
    if found > len(corpus):
        raise ValueError(f"index {name} has {found:,} documents, the corpus {len(corpus):,} passages: not the same")
    fields = reader.storedFields()
    sample = sorted({row * (rows - 1) // max(1, CHECKED - 1) for row in range(CHECKED)}) if rows else []
    for row in sample:
        docid = passage_id(fields.document(row).get("id") or "")
        try:
            corpus.get([docid])
        except KeyError as error:
            raise ValueError(f"index {name} holds {docid!r}, which the corpus lacks: not the same corpus") from error
    if found < len(corpus):
        warnings.warn(f"index {name} has {found:,} documents for {len(corpus):,} passages", stacklevel=3)
