"""Metadata of a run as YAML, by the names of ir_metadata (Breuer, Keller and Schaer 2022, https://www.ir-metadata.org)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

_NOT_PLAIN = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}


def metadata_lines(metadata: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yields nested mappings, lists and scalars as YAML lines.

    Strings are always quoted, so that none is taken for a number or a truth; other objects are written as strings.
    """
    for key, value in metadata.items():
        letters = key.replace(" ", "").replace("_", "")
        plain = letters.isascii() and letters.isalpha() and key == key.strip() and key.lower() not in _NOT_PLAIN
        yield from _item(f"{indent}{key if plain else _scalar(key)}:", value, indent)


def _item(head: str, value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield head
        yield from metadata_lines({str(key): inner for key, inner in value.items()}, f"{indent}  ")
    elif isinstance(value, (list, tuple)) and value:
        yield head
        for inner in value:
            yield from _item(f"{indent}  -", inner, f"{indent}  ")
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, float):
        if value - value != 0.0:
            return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[float.__repr__(value)]
        text = float.__repr__(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text  # YAML 1.1 wants the point
    if isinstance(value, (Mapping, list, tuple)):  # the empty ones
        return "{}" if isinstance(value, Mapping) else "[]"
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    # YAML allows fewer bare characters than JSON does, and has no surrogate pairs
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(str(value), ensure_ascii=False))
