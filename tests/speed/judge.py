"""Judging on a CPU: ``python tests/speed/judge.py [--pairs 48] [--rounds 5] [--threads 2]``.

The published way (transformers' generate, one pair at a time, 16 new tokens, all of them forced, because a random model
does not end by itself), one plain batched forward, and the judge ``mistral`` with and without sharing, in turns in one
run, on the same random Mistral of 31 million parameters, the authors' prompt and their human pairs
(``$RETRIEVAL_DIVERSITY_DATA/berds``). The tokenizer is trained here to about as many tokens as Mistral's makes. Beside
the time that passed stands the time of processors, which says more where others use the machine (with ``--threads 1``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' tiny models

from evaluator.judges.mistral import Mistral
from evaluator.pairs import read_pairs
from evaluator.types import Pair
from lm.causal import CPU_TOKENS
from lm.prefixes import plan
from lm.transformer import pad
from tests.lm.tiny_causal import make_tokenizer

DATA = Path(os.environ.get("RETRIEVAL_DIVERSITY_DATA", Path(__file__).parents[3] / "shared" / "data")) / "berds"
PROMPT = DATA / "prompts" / "eval_instructions_chat.txt"
SHAPE = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 14, "num_attention_heads": 4}
NEW_TOKENS = 16


def save(folder: Path, pairs: list[Pair], vocabulary: int = 5000) -> None:
    """The random model and a tokenizer."""
    texts = [f"{each.passage.text} {each.perspective.text}" for each in pairs]
    make_tokenizer([*texts, PROMPT.read_text()], vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.MistralConfig(vocab_size=32_000, num_key_value_heads=4, sliding_window=None, **SHAPE)
    transformers.MistralForCausalLM(config).save_pretrained(folder)


def published(model: transformers.PreTrainedModel, ids: list[list[int]]) -> Callable[[], None]:
    """One pair at a time, 16 new tokens."""

    def run() -> None:
        for each in ids:
            with torch.no_grad():
                model.generate(
                    torch.tensor([each]), attention_mask=torch.ones((1, len(each)), dtype=torch.int64),
                    do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, pad_token_id=2,
                )  # fmt: skip

    return run


def batched(model: transformers.PreTrainedModel, ids: list[list[int]], size: int = 8) -> Callable[[], None]:
    """A padded forward of eight pairs at a time, sorted by length, last logits only."""
    order = sorted(ids, key=len)

    def run() -> None:
        for start in range(0, len(order), size):
            inputs = pad([{"input_ids": each} for each in order[start : start + size]], 2, left=True)
            with torch.no_grad():
                model(**inputs, logits_to_keep=1)

    return run


def matrix_rate(model: transformers.PreTrainedModel, tokens: int = 2048) -> float:
    """FLOP/s of the model's own matrix products on 2,048 tokens, nothing else; the best of several rounds."""
    weights = [each.weight for each in model.model.layers.modules() if isinstance(each, torch.nn.Linear)]
    inputs = {width: torch.randn(tokens, width) for width in {weight.shape[1] for weight in weights}}
    best = 0.0
    with torch.no_grad():
        for _ in range(10):
            start = time.perf_counter()
            for weight in weights:
                torch.nn.functional.linear(inputs[weight.shape[1]], weight)
            best = max(best, 2 * tokens * sum(map(torch.numel, weights)) / (time.perf_counter() - start))
    return best


def work(model: transformers.PreTrainedModel, ids: list[list[int]], share: bool) -> tuple[int, float]:
    """Tokens that have to be computed, and the FLOPs of their matrix products and of the last layer."""
    begin, groups = plan(ids, range(len(ids)), CPU_TOKENS)
    tokens = len(begin) + sum(group.length for group in groups) if share else sum(map(len, ids))
    layers = sum(each.weight.numel() for each in model.model.layers.modules() if isinstance(each, torch.nn.Linear))
    return tokens, 2.0 * tokens * layers + 2.0 * len(ids) * model.lm_head.weight.numel()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--pairs", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if not PROMPT.is_file():
        sys.exit(f"no {PROMPT}: set RETRIEVAL_DIVERSITY_DATA (see CONTRIBUTING.md)")
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pairs = [each.pair for each in read_pairs(DATA / "pers_det.half.tsv")]
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), pairs)
        measure(Path(folder), pairs[: given.pairs], given.rounds)


def measure(folder: Path, pairs: list[Pair], rounds: int) -> None:
    """All ways in turns; medians."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    judges = {
        share: Mistral(folder, prompt=PROMPT, rendering="mistral", dtype="fp32", device="cpu", share=share)
        for share in (True, False)
    }
    ids = [each for each in judges[True]._reader.ids([values(pair) for pair in pairs]) if each is not None]
    ways = {
        "published: generate, one by one": published(model, ids),
        "one plain batched forward": batched(model, ids),
        "mistral, sharing off": lambda: list(judges[False].judge(pairs)) and None,
        "mistral": lambda: list(judges[True].judge(pairs)) and None,
    }
    for run in ways.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in ways}
    work_times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start, worked = time.perf_counter(), time.process_time()
            run()
            times[name].append(time.perf_counter() - start)
            work_times[name].append(time.process_time() - worked)
    rate = matrix_rate(model)
    parameters = sum(each.numel() for each in model.parameters())
    print(f"{parameters / 1e6:.1f} M parameters, {len(pairs)} pairs of {statistics.mean(map(len, ids)):.0f} tokens,")
    print(f"{torch.get_num_threads()} threads, fp32, matrix products at {rate / 1e9:.0f} GFLOP/s; medians of {rounds}")
    base, work_base = (statistics.median(each["published: generate, one by one"]) for each in (times, work_times))
    for name, found in times.items():
        took = statistics.median(found)
        tokens, flops = work(model, ids, name == "mistral")
        share = f"{tokens / len(ids):5.0f} tokens, {flops / took / rate:4.0%} of the rate"
        share = share if name.startswith("mistral") else ""
        worked = statistics.median(work_times[name])
        times_per_pair = (
            f"{1e3 * took / len(pairs):6.1f} ms per pair ({1e3 * worked / len(pairs):6.1f} ms of processors)"
        )
        print(f"{name:32} {times_per_pair}  {base / took:5.2f} x ({work_base / worked:5.2f} x)  {share}")


def values(pair: Pair) -> dict[str, str]:
    """What the prompt is filled with."""
    return {"passage": pair.passage.text, "perspective": pair.perspective.text}


if __name__ == "__main__":
    main()
