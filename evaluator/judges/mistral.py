"""A judge that is a causal language model: by default the published evaluator of BERDS.

Chen and Choi, 2024, https://arxiv.org/abs/2409.18110: Mistral-7B-Instruct-v0.2 fine-tuned on labels by GPT-4.
The default is their merged model (https://huggingface.co/timchen0618/Mistral_BERDS_evaluator_full, MIT; 29 GB of fp32
safetensors) and not the adapter (``timchen0618/Mistral_BERDS_evaluator``) on its base, although that is half the
download: the base model can only be had after a login and a click at the hub, and the commit of the merged one is known
(77cc983; the hub takes full commits only, so it is checked against what ``main`` is). To take the adapter:

    --judge mistral --judge-args model=mistralai/Mistral-7B-Instruct-v0.2 \
        revision=3ad372fc79158a2148299e3318516c786aeded6c adapter=timchen0618/Mistral_BERDS_evaluator \
        prompt=berds rendering=mistral

Any other causal model is asked with our own prompt, in its own chat template:

    --judge mistral --judge-args model=Qwen/Qwen2.5-7B-Instruct

Both also run on a server with the interface of vLLM, started with ``vllm serve MODEL``:

    --judge mistral --judge-args server=http://localhost:8000/v1
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from corpora.fingerprint import digest
from evaluator.judges.readings import WORDS, Difference, read_answer, read_scores
from evaluator.types import Judgement, Pair, document
from lm.causal import CausalModel
from lm.prompts import Prompt, load_prompt
from lm.reading import PromptReader
from lm.rendering import TEMPLATE, check_rendering, find_template, render_chat
from lm.transformer import Dtype

if TYPE_CHECKING:
    from lm.completions import CompletionsServer

EVALUATOR = "timchen0618/Mistral_BERDS_evaluator_full"
COMMIT = "77cc983"
"""The beginning of the evaluator's only published commit."""
Parse = Literal["probability", "authors"]
NEW_TOKENS = 16
"""So many tokens do the authors generate."""
BLOCK = 2048
"""Pairs that are rendered and tokenised at a time."""


class Mistral:
    """Asks whether the passage supports the perspective, and reads Yes or No.

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: ``main``, the commit being part of the fingerprint.
        adapter: Folder or model id of a LoRA adapter.
        adapter_revision: The same as ``revision``.
        prompt: Name or path (``lm.prompts.load_prompt``); None: the authors' for their evaluator, else ``support``.
        rendering: ``mistral``, ``chatml``, ``llama3``, ``plain`` or ``template`` (the model's own); None: ``mistral``
            for the published evaluator, else ``template``.
        parse: ``probability``: of Yes against No at the first token of the answer, from one forward pass; an answer
            that begins with another word is unparsed. ``authors``: 16 tokens are generated and read as published.
        max_length: Tokens of a prompt, above which the passage is cut at its end; None: what the model takes.
        dtype: ``fp32`` (as published), ``bf16`` or ``fp16``.
        device: See ``lm.causal.CausalModel``.
        batch_tokens: Likewise.
        share: Likewise.
        server: Address of a server with ``/v1/completions`` that has this model (``lm.completions``), for example
            ``http://localhost:8000/v1``; None: the model is loaded here. What it computes with is its own affair, so
            its judgements are kept apart from those made here.
        served_as: The model's name on the server; None: ``model``.
        api_key_env: Name of the environment variable with the server's key; None: no key.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_tokens", "share", "server", "api_key_env")

    def __init__(
        self,
        model: str | Path = EVALUATOR,
        revision: str | None = None,
        adapter: str | Path | None = None,
        adapter_revision: str | None = None,
        prompt: str | Path | None = None,
        rendering: str | None = None,
        parse: Parse = "probability",
        max_length: int | None = None,
        dtype: Dtype = "bf16",
        device: str | None = None,
        batch_tokens: int | None = None,
        share: bool = True,
        server: str | None = None,
        served_as: str | None = None,
        api_key_env: str | None = None,
    ) -> None:
        if parse not in get_args(Parse):
            raise ValueError(f"parse={parse}: expected one of {', '.join(get_args(Parse))}")
        if rendering is not None:
            check_rendering(rendering)
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length={max_length}: expected at least 1")
        self.model, self.revision = model, revision
        self.adapter, self.adapter_revision = adapter, adapter_revision
        self.prompt, self.rendering, self.parse = prompt, rendering, parse
        self.max_length, self.dtype = max_length, dtype
        self.device, self.batch_tokens, self.share = device, batch_tokens, share
        self.server, self.served_as, self.api_key_env = server, served_as, api_key_env
        self._model: CausalModel | CompletionsServer
        if server is None:
            self._model = CausalModel(model, revision, adapter, adapter_revision, dtype, device, batch_tokens, share)
        else:
            self._model = _on_server(model, revision, adapter, adapter_revision, server, served_as, api_key_env)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of weights, adapter, dtype, prompt, rendering and all else that changes an answer."""
        self._check_commit()
        template = find_template(self._model.tokenizer, str(self.model)) if self._rendering == TEMPLATE else ""
        reading = [self._prompt.hash, self._rendering, template, self.parse, self.max_length]
        return digest(["Mistral", self.version, self._model.fingerprint, reading, WORDS, NEW_TOKENS])

    def _check_commit(self) -> None:
        if str(self.model) == EVALUATOR and self.revision is None:
            commit = self._model.source.identity.rpartition("@")[2]
            if not commit.startswith(COMMIT):
                raise ValueError(
                    f"the published evaluator was commit {COMMIT} of {EVALUATOR}, main is now {commit}: give the full "
                    "commit as revision, or revision=main to take what is there"
                )

    @property
    def ledger(self) -> dict[str, object] | None:
        """What the server was asked in this process, for provenance.json; None for a model on this machine."""
        return None if self.server is None else self._model.took  # type: ignore[union-attr]

    def prefetch(self) -> None:
        """Downloads prompt, model and adapter, as far as they are not cached."""
        load_prompt(self._prompt_name)
        self._model.prefetch()

    def render(self, pair: Pair) -> str:
        """The string that the model reads."""
        tokenizer = self._model.tokenizer if self._rendering == TEMPLATE else None
        return render_chat(self._prompt.render(_values(pair)), self._rendering, tokenizer)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) as batches finish."""
        for start, ids in self._blocks(pairs):
            for position in (i for i, prompt in enumerate(ids) if prompt is None):
                yield start + position, Judgement("unparsed", None, "the perspective is too long", 0.0)
            chosen = [i for i, prompt in enumerate(ids) if prompt is not None]
            for place, judgement in self._judgements([prompt for prompt in ids if prompt is not None]):
                yield start + chosen[place], judgement

    def _blocks(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, list[list[int] | None]]]:
        """(first position, token ids): a block is tokenised while the one before it is judged."""
        starts = range(0, len(pairs), BLOCK)
        reader = self._reader  # loaded here, once

        def read(start: int) -> list[list[int] | None]:
            return reader.ids([_values(pair) for pair in pairs[start : start + BLOCK]])

        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(read, start) for start in starts[:1]]
            for start in starts:
                ids = waiting.pop().result()
                waiting += [pool.submit(read, after) for after in (start + BLOCK,) if after < len(pairs)]
                yield start, ids

    def parsed_as(self, parse: Parse) -> Mistral:
        """A judge that reads answers in this way, with the same model in memory."""
        names = [name for name in inspect.signature(Mistral).parameters if name != "parse"]
        other = Mistral(parse=parse, **{name: getattr(self, name) for name in names})
        other._model = self._model
        return other

    def _judgements(self, prompts: Sequence[list[int]]) -> Iterator[tuple[int, Judgement]]:
        if self.parse == "authors":
            for place, text in self._model.generate(prompts, NEW_TOKENS):
                yield place, read_answer(text)
            return
        for place, scored in self._model.score(prompts, self._labels):
            yield place, read_scores(scored)

    @cached_property
    def _labels(self) -> list[tuple[int, ...]]:
        return [self._model.label_ids(words) for words in WORDS]

    @cached_property
    def _reader(self) -> PromptReader:
        limit = self._model.max_length - (NEW_TOKENS if self.parse == "authors" else 0)
        limit = min(self.max_length or limit, limit)
        # A tokenizer of its own, because it works in another thread than the model's.
        return PromptReader(self._prompt, self._rendering, copy.deepcopy(self._model.tokenizer), limit)

    @cached_property
    def _prompt(self) -> Prompt:
        return load_prompt(self._prompt_name)

    @property
    def _published(self) -> bool:
        return str(self.model) == EVALUATOR

    @property
    def _prompt_name(self) -> str | Path:
        return self.prompt or ("berds" if self._published else "support")

    @property
    def _rendering(self) -> str:
        return self.rendering or ("mistral" if self._published else TEMPLATE)


def _on_server(
    model: str | Path,
    revision: str | None,
    adapter: str | Path | None,
    adapter_revision: str | None,
    server: str,
    served_as: str | None,
    api_key_env: str | None,
) -> CompletionsServer:
    try:
        from lm.completions import CONCURRENCY, CompletionsServer  # openai is needed for servers only
        from lm.server import Server
    except ModuleNotFoundError as error:
        raise ValueError(f"server={server} needs {error.name!r}: pip install -e '.[llm]'") from error
    at = Server(server, api_key_env, CONCURRENCY)
    return CompletionsServer(model, at, revision, adapter, adapter_revision, served_as)


def _values(pair: Pair) -> dict[str, str]:
    return {
        "passage": document(pair.passage),
        "perspective": pair.perspective.text,
        "question": pair.question.text,
    }


def compare_parsing(judge: Mistral, pairs: Sequence[Pair], threshold: float = 0.5) -> Difference:
    """Judges the pairs both ways, with one model in memory."""
    ways = [dict(judge.parsed_as(parse).judge(pairs)) for parse in get_args(Parse)]
    both = [[way[i].probability for way in ways] for i in range(len(pairs))]
    known = [(one >= threshold) != (other >= threshold) for one, other in both if one is not None and other is not None]
    return Difference(len(pairs), len(pairs) - len(known), sum(known))
