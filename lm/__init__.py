"""First floor: the language models that retrievers, rerankers and the evaluator share."""

from __future__ import annotations

from pathlib import Path

from corpora.registry import Registry
from lm.base import Encoder, QueryVectors

_ENCODERS = {
    "contriever": "lm.encoder:contriever",
    "dpr": "lm.encoder:dpr",
    "minilm": "lm.encoder:minilm",
    "sentence_transformer": "lm.sentence_transformer:SentenceTransformerEncoder",
    "transformers": "lm.encoder:TransformersEncoder",
    "uae": "lm.encoder:uae",
}
ENCODERS: Registry[Encoder] = Registry("encoders", _ENCODERS, extras=dict.fromkeys(_ENCODERS, "dense"))


def make_encoder(name_or_path: str | Path, **arguments: object) -> Encoder:
    """An encoder by name, import path, local folder or model id of the hub.

    A folder or model id is a sentence-transformers model where it has a ``modules.json``, else a transformers model
    with mean pooling (or the ``pooling`` given). Nothing is loaded, but which of the two a model id is may have to be
    asked from the hub where its cache does not know.

    Args:
        name_or_path: ``contriever``, ``my.module:MyEncoder``, ``models/mine``, ``BAAI/bge-base-en-v1.5`` ...
        arguments: The encoder's, for example ``dtype="bf16"``; strings are converted to the declared types.

    Raises:
        ValueError: An unknown name, wrong arguments, or a model that can be found neither here nor on the hub.
    """
    name = str(name_or_path)
    folder = isinstance(name_or_path, Path) or "/" in name or Path(name).is_dir()
    if not folder or name in ENCODERS.names() or (":" in name and not Path(name).is_dir()):
        return ENCODERS.create(name, arguments)
    if isinstance(name_or_path, Path) and not name_or_path.is_absolute():
        name = f"./{name}"  # never a model id
    ENCODERS.load("transformers")  # says which extra is missing
    from lm.source import Source

    revision = arguments.get("revision")
    own = Source(name, str(revision) if revision else None).has("modules.json")
    return ENCODERS.create("sentence_transformer" if own else "transformers", {"model": name, **arguments})


__all__ = ["ENCODERS", "Encoder", "QueryVectors", "make_encoder"]
