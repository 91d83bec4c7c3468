"""Where a model's files come from: a local folder, the Hugging Face cache or hub, or an installed package.

Weights are safetensors, always. Several well-known repositories (DPR and Contriever among them) hold pickled weights
only; for those the hub keeps conversions by its own bot as pull requests. ``Source.prefetch`` takes such a
conversion if it was made of the very weights that the wanted commit has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

from corpora.artefacts import artefact, content_hash, find_artefact
from corpora.fingerprint import digest

PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
"""The files that a model is made of; the others (pickles, ONNX, pictures) are neither downloaded nor hashed."""
TOKENIZER_PATTERNS = [pattern for pattern in PATTERNS if pattern != "*.safetensors"]
IGNORED = ["onnx/*", "openvino/*", ".*"]
MARKERS = ("config.json", "modules.json", "adapter_config.json")
"""One of these stands in every folder with a transformers model, a sentence-transformers model or a PEFT adapter."""
BOT = "SFconvertbot"
"""The hub's own account that converts weights to safetensors."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNREACHABLE = (OSError, HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, LocalEntryNotFoundError)


class Source:
    """The files of one model, found on first use.

    Args:
        model: A local folder, or a model id of the hub.
        revision: Branch, tag or commit of the hub (None: ``main``, as it is in the cache, else on the hub); a local
            folder has none.
        package: An installed package with the same model in its folder ``model``, used where the hub's cache lacks it.
    """

    def __init__(self, model: str | Path, revision: str | None = None, package: str | None = None) -> None:
        self.model = str(model)
        self.revision = revision
        self.package = package

    @cached_property
    def identity(self) -> str:
        """Names the model for good: its content for a folder, id and commit for the hub; no weights are downloaded."""
        if self._local is not None:
            return f"content:{_content(self._local)}"
        return f"hub:{self.model}@{self._commit}"

    @cached_property
    def folder(self) -> Path:
        """The local folder with configuration, tokenizer and safetensors; downloaded where it is not cached.

        Raises:
            ValueError: No such folder; not cached and the hub cannot be reached; or there are no safetensors.
        """
        if self._local is None:
            return self._cached(self._commit) or self._fetch()
        if not _has_weights(self._local) or _has_pickles(self._local):
            raise ValueError(_no_weights(self.model, "this folder"))
        return self._local

    @cached_property
    def tokenizer_folder(self) -> Path:
        """The local folder with configuration and tokenizer; no weights are downloaded, or asked for.

        Raises:
            ValueError: No such folder; or not cached and the hub cannot be reached.
        """
        if self._local is not None:
            return self._local
        if (cached := self._cached(self._commit)) is not None:
            return cached
        try:
            return _snapshot(self.model, self._commit, TOKENIZER_PATTERNS)
        except _UNREACHABLE as error:
            raise ValueError(self._unavailable(error)) from error

    def prefetch(self) -> Path:
        """Downloads what is missing (local folders and packages have all they need) and returns the folder."""
        return self.folder

    def has(self, name: str) -> bool:
        """Whether the model has a file of this name; looks into the cache first, asks the hub otherwise."""
        if self._local is not None:
            return (self._local / name).is_file()
        if (cached := self._cached(self._commit)) is not None:
            return (cached / name).is_file()
        try:
            return (_snapshot(self.model, self._commit, [name]) / name).is_file()
        except _UNREACHABLE as error:
            raise ValueError(self._unavailable(error)) from error

    @property
    def _is_path(self) -> bool:
        return self.model.startswith((".", "/", "~")) or Path(self.model).is_dir()

    @cached_property
    def _local(self) -> Path | None:
        if self._is_path:
            folder = Path(self.model).expanduser()
            if not _is_marked(folder):
                raise ValueError(f"{self.model} is no model folder: expected {' or '.join(MARKERS)} in it")
            if self.revision is not None:
                raise ValueError(f"revision={self.revision}: the folder {self.model} has no revisions: leave it out")
            return folder
        spec = find_spec(self.package) if self.package else None
        if spec is None or spec.origin is None or (self._known_commit and self._cached(self._known_commit)):
            return None
        return Path(spec.origin).parent / "model"

    @property
    def _known_commit(self) -> str | None:
        """The commit as far as it can be told without the hub."""
        if self.revision and _COMMIT.fullmatch(self.revision):
            return self.revision
        reference = Path(constants.HF_HUB_CACHE) / f"models--{self.model.replace('/', '--')}" / "refs"
        try:
            return (reference / (self.revision or "main")).read_text().strip() or None
        except OSError:
            return None

    @cached_property
    def _commit(self) -> str:
        if known := self._known_commit:
            return known
        try:
            return _snapshot(self.model, self.revision, ["config.json"]).name
        except _UNREACHABLE as error:
            raise ValueError(self._unavailable(error)) from error

    def _cached(self, commit: str) -> Path | None:
        """The complete snapshot of a commit, or of its conversion, in the local cache."""
        converted = find_artefact("conversions", self._conversion_key(commit))
        wanted = (converted / "commit.txt").read_text() if converted else commit
        try:
            return _complete(_snapshot(self.model, wanted, offline=True))
        except _UNREACHABLE:
            return None

    def _fetch(self) -> Path:
        commit = self._commit
        try:
            # Without a network a branch fails at once, a commit only after half a minute of retries.
            _snapshot(self.model, "main", ["config.json"])
            found = _complete(_snapshot(self.model, commit))
            if found is None and (converted := find_conversion(self.model, commit)) is not None:
                key = self._conversion_key(commit)
                artefact("conversions", key, lambda folder: _write(folder / "commit.txt", converted))
                found = _complete(_snapshot(self.model, converted))
        except _UNREACHABLE as error:
            raise ValueError(self._unavailable(error)) from error
        if found is None:
            raise ValueError(_no_weights(self.model, f"its commit {commit[:12]}"))
        return found

    def _conversion_key(self, commit: str) -> str:
        return digest(["conversion", self.model, commit])

    def _unavailable(self, error: Exception) -> str:
        if isinstance(error, HFValidationError):
            return f"model {self.model!r} is no folder, and no model id of the hub: expected owner/name"
        why = "no network is allowed (HF_HUB_OFFLINE)" if constants.HF_HUB_OFFLINE else _first_line(error)
        at = f" at revision {self.revision}" if self.revision else ""
        return (
            f"model {self.model!r}{at} is neither a local folder nor complete in the Hugging Face cache, and {why}: "
            "run once with a network and --prefetch (or call its prefetch()), or give a local folder"
        )


def find_conversion(model: str, commit: str) -> str | None:
    """The commit of the hub bot's conversion to safetensors of exactly this commit's weights, or None.

    The pull request must be the bot's own, and the pickled weights beside the conversion the very same file
    (by SHA-256): a conversion of other weights is no conversion.
    """
    api = HfApi()
    wanted = _pickle_hash(api, model, commit)
    if wanted is None:
        return None
    for each in api.get_repo_discussions(model, author=BOT, discussion_type="pull_request"):
        reference = each.git_reference
        if each.author == BOT and reference and _pickle_hash(api, model, reference) == wanted:
            return str(api.model_info(model, revision=reference).sha)
    return None


def _pickle_hash(api: HfApi, model: str, revision: str) -> str | None:
    for file in api.get_paths_info(model, ["pytorch_model.bin"], revision=revision):
        lfs = getattr(file, "lfs", None)
        return str(lfs.sha256) if lfs else None
    return None


def _snapshot(model: str, revision: str | None, files: Sequence[str] = PATTERNS, offline: bool = False) -> Path:
    """The folder of a commit in the hub's cache, which has the commit's name."""
    found = snapshot_download(
        model, revision=revision, allow_patterns=list(files), ignore_patterns=IGNORED, local_files_only=offline
    )
    return Path(found)


def _complete(folder: Path) -> Path | None:
    """The folder where it has a configuration and weights, all shards of them."""
    if not _has_weights(folder) or not _is_marked(folder):
        return None
    for index in folder.glob("*.safetensors.index.json"):
        shards = set(json.loads(index.read_text())["weight_map"].values())
        if not all((folder / shard).is_file() for shard in shards):
            return None
    return folder


def _is_marked(folder: Path) -> bool:
    return any((folder / name).is_file() for name in MARKERS)


def _has_weights(folder: Path) -> bool:
    return any(file.suffix == ".safetensors" for file in _model_files(folder))


def _has_pickles(folder: Path) -> bool:
    """Whether a part of a sentence-transformers model has pickled weights only."""
    return any(not any(file.parent.glob("*.safetensors")) for file in folder.rglob("pytorch_model.bin"))


def _no_weights(model: str, where: str) -> str:
    return (
        f"model {model!r}: {where} lacks *.safetensors, and other formats (pytorch_model.bin) are not loaded because "
        "they can run code: give revision=refs/pr/N of a conversion on the hub, or a folder written by "
        "save_pretrained(..., safe_serialization=True)"
    )


def _content(folder: Path) -> str:
    """A hash of the files that a model is made of; a README or a pickle beside them does not count."""
    files = {file.relative_to(folder).as_posix(): content_hash(file) for file in _model_files(folder)}
    return digest(files)


def _model_files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        skipped = name.parts[0] in ("onnx", "openvino") or any(part.startswith(".") for part in name.parts)
        if not skipped and file.is_file() and any(file.match(pattern) for pattern in PATTERNS):
            yield file


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
