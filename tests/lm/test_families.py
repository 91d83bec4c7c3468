"""Families of models by their names; names as their makers and the hub write them."""

from __future__ import annotations

import pytest

from lm.families import family_named, family_of


@pytest.mark.parametrize(
    "model, family",
    [
        ("gpt-4-0613", "gpt"),
        ("gpt-4o-mini", "gpt"),
        ("gpt-3.5-turbo", "gpt"),
        ("openai/gpt-oss-20b", "gpt"),
        ("chatgpt-4o-latest", "gpt"),
        ("o1", "gpt"),
        ("o3-mini", "gpt"),
        ("claude-3-5-sonnet-20241022", "claude"),
        ("anthropic/claude-opus-4", "claude"),
        ("google/gemma-2-9b-it", "gemini"),
        ("gemini-1.5-pro", "gemini"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistral"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("/models/qwen2.5-0.5b", "qwen"),
        ("deepseek-chat", "deepseek"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi"),
        ("CohereForAI/c4ai-command-r-v01", "command"),
        ("EleutherAI/gpt-j-6b", None),
        ("EleutherAI/gpt-neox-20b", None),
        ("openai-community/gpt2", None),
        ("nomic-ai/gpt4all-j", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None),
        ("foo1", None),
        ("graphite", None),
        ("default", None),
        ("", None),
    ],
)
def test_names_of_models(model, family):
    assert family_of(model) == family


@pytest.mark.parametrize(
    "written, family",
    [
        ("gpt", "gpt"),
        (" GPT-4 ", "gpt"),
        ("OpenAI", "gpt"),
        ("Gemma", "gemini"),
        ("Mixtral", "mistral"),
        ("Own", "own"),
    ],
)
def test_families_as_people_write_them(written, family):
    assert family_named(written) == family
