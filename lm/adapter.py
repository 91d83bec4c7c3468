"""LoRA adapters in PEFT's form, merged into their base model on loading; safetensors only.

Hu and others, 2021, https://arxiv.org/abs/2106.09685; https://github.com/huggingface/peft.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
_PLAIN = (True, False, "gaussian", None)
"""How a LoRA may have been initialised: the other ways change the base model, or read further files."""


def adapter_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors of an adapter, under the names that the base model gives its own.

    Raises:
        ValueError: No adapter, another kind than LoRA, or weights in a form that is not loaded.
    """
    _check(folder)
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            names = file.keys()
            return {name.removeprefix(PREFIX): tuple(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise ValueError(f"{folder / WEIGHTS} is broken ({error}): copy or download it anew") from error


def merge_adapter(model: Any, folder: Path) -> Any:
    """The model with the adapter merged into its weights, and with the modules (a head) that the adapter carries.

    Args:
        model: The base model, in fp32 where nothing may be lost; it is changed.
        folder: ``adapter_config.json`` and ``adapter_model.safetensors``.

    Raises:
        ValueError: See ``adapter_shapes``; or the adapter was made for another model.
    """
    _check(folder)
    config = PeftConfig.from_pretrained(str(folder))
    config.inference_mode = True
    config.base_model_name_or_path = model.name_or_path  # another place of the same weights is no reason to warn
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name that will change
            adapted: Any = get_peft_model(model, config)
        report: Any = set_peft_model_state_dict(adapted, load_file(folder / WEIGHTS))
        own = [name for name in report.missing_keys if "lora_" in name or "modules_to_save" in name]
        if wrong := sorted([*own, *report.unexpected_keys]):
            raise ValueError(f"{len(wrong)} tensors are in only one of both, {wrong[0]} for example")
        return adapted.merge_and_unload(safe_merge=True).eval()
    except (ValueError, TypeError, RuntimeError, KeyError, SafetensorError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"the adapter in {folder} does not fit {type(model).__name__}: {problem[:300]}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: It holds none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}): copy or download it anew") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected a JSON object")
    return found


def _check(folder: Path) -> None:
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder} is no adapter: expected {CONFIG} and {WEIGHTS} in it")
    if not (folder / WEIGHTS).is_file():
        found = ", ".join(sorted(file.name for file in folder.glob("adapter_model*"))) or "nothing"
        raise ValueError(
            f"the adapter in {folder} has {found}, expected {WEIGHTS}: pickled weights are not loaded because they can "
            "run code; save it anew with save_pretrained(..., safe_serialization=True)"
        )
    settings = read_json(folder / CONFIG)
    kind, start = settings.get("peft_type"), settings.get("init_lora_weights", True)
    if kind != "LORA":
        raise ValueError(f"the adapter in {folder} is of the type {kind}: only LORA is read")
    if settings.get("megatron_config"):  # PEFT would import the module that the file names
        raise ValueError(f"{folder / CONFIG}: adapters for Megatron are not supported")
    if start not in _PLAIN:
        raise ValueError(f"{folder / CONFIG}: init_lora_weights={start} is not supported: convert it to a plain LoRA")
