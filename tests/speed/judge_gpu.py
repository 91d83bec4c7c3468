"""Judging on a GPU: ``python tests/speed/judge_gpu.py`` from a checkout; nothing is downloaded.

A model of the shape of Mistral-7B with random weights in bf16, a tokenizer made here, and made-up pairs: passages of
100 words, two perspectives each. It reports pairs per second and the share of the device's own bf16 matrix-product rate
(8,192 x 8,192 x 8,192, measured in the same run), counted over the tokens that have to be computed only: no padding,
nothing that is shared twice, no attention. Two layouts: our prompt (instruction, passage, statement), and one with a
long instruction behind the statement, as the authors' has. Without a GPU a tiny model shows that it works.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' tiny models

from corpora.types import Passage, Perspective, Question
from evaluator.judges.mistral import Mistral
from evaluator.types import Pair
from lm.causal import WINDOW
from lm.prefixes import plan
from lm.replica import Replica
from tests.lm.tiny_causal import make_tokenizer

SHAPE = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
BEHIND = "messages:\n- role: user\n  content: |-\n    Passage: {passage}\n    Statement: {perspective}\n    "
INSTRUCTION = (
    "Say Yes if the passage speaks for the statement and No if it does not, and nothing besides. A passage that takes "
    "the other side, that is about another matter, or that has words in common with the statement and no more, does "
    "not speak for it. Take what stands in the passage and add no knowledge of your own. It comes from a page of the "
    "web and may begin or end in the middle of a sentence. It need not say the very words of the statement: reasons, "
    "facts and examples that make it more likely to be right are enough. Read to the end before you decide."
)


def made_up(n: int, seed: int = 0) -> list[Pair]:
    """Pairs of pseudo-words: passages of 100 words, two perspectives of 8 to 16 words each."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstv" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]
    words = ["".join(rng.choices(syllables, k=rng.choice((1, 1, 2, 2, 3)))) for _ in range(5000)]

    def text(size: int) -> str:
        return " ".join(rng.choices(words, k=size))

    pairs = []
    for i in range(n // 2):
        passage = Passage(f"p{i}", text(100))
        views = tuple(Perspective(f"{i}.{j}", text(rng.randrange(8, 17)), None) for j in range(2))
        pairs += [Pair(Question(f"q{i}", text(8), views), view, passage) for view in views]
    return pairs


def model_of(shape: dict[str, int], vocabulary: int, device: torch.device) -> transformers.PreTrainedModel:
    """Random weights, made on the device."""
    config = transformers.MistralConfig(
        vocab_size=vocabulary, num_key_value_heads=shape["num_attention_heads"] // 4, sliding_window=None, **shape
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return transformers.MistralForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - start


def matrix_rate(device: torch.device, size: int) -> float:
    """bf16 FLOP/s of one large matrix product: the median of rounds of ten, after a warm-up."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def ten() -> None:
        for _ in range(10):
            torch.mm(a, b)

    ten()
    return 10 * 2 * size**3 / statistics.median(timed(ten, device) for _ in range(5))


def flops(
    model: transformers.PreTrainedModel, ids: Sequence[Sequence[int]], most: int, share: bool
) -> tuple[int, float]:
    """Tokens that have to be computed, and the FLOPs of the products with the model's matrices."""
    tokens = sum(map(len, ids))
    if share:
        tokens = 0
        for start in range(0, len(ids), WINDOW):
            begin, groups = plan(ids, range(start, min(start + WINDOW, len(ids))), most)
            tokens += len(begin) + sum(group.length for group in groups)
    layers = sum(each.weight.numel() for each in model.model.layers.modules() if isinstance(each, torch.nn.Linear))
    return tokens, 2.0 * tokens * layers + 2.0 * len(ids) * model.lm_head.weight.numel()


def main() -> None:
    """Prints a table per layout."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--pairs", type=int, help="default: 2048 on a GPU, 32 on a CPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-tokens", type=int)
    given = parser.parse_args()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    transformers.logging.set_verbosity_error()
    pairs = made_up(given.pairs or (2048 if gpu else 32))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prompts = {"support": "support", "instruction behind": folder / "behind.yaml"}
        (folder / "behind.yaml").write_text(BEHIND + INSTRUCTION)
        make_tokenizer([each.passage.text for each in pairs] + [INSTRUCTION], 2400).save_pretrained(folder)
        model = model_of(SHAPE if gpu else TINY, 32_000, device)
        model.config.save_pretrained(folder)
        rate = matrix_rate(device, 8192 if gpu else 512)
        where = torch.cuda.get_device_name(0) if gpu else "CPU"
        count = sum(each.numel() for each in model.parameters())
        print(f"{where}, torch {torch.__version__}, transformers {transformers.__version__}")
        print(
            f"{count / 1e9:.2f} G parameters in bf16, matrix products at {rate / 1e12:.3g} TFLOP/s, {len(pairs)} pairs"
        )
        replica = Replica(model)
        for layout, prompt in prompts.items():
            measure(layout, folder, prompt, pairs, replica, rate, given.rounds, given.batch_tokens)


def measure(
    layout: str, folder: Path, prompt: str | Path, pairs: list[Pair], replica: Replica, rate: float,
    rounds: int, batch_tokens: int | None,
) -> None:  # fmt: skip
    """Sharing on and off in turns, the model alone and the whole judge."""
    model, device = replica.model, replica.device
    judges = {}
    for share in (True, False):
        judge = Mistral(folder, prompt=prompt, rendering="mistral", batch_tokens=batch_tokens, share=share)
        judge._model.__dict__["_replicas"] = [replica]  # one model in memory, instead of what each would load
        judges[share] = judge
    values = [{"passage": each.passage.text, "perspective": each.perspective.text} for each in pairs]
    ids = [each for each in judges[True]._reader.ids(values) if each is not None]
    ways: dict[tuple[bool, str], Callable[[], object]] = {}
    for share, judge in judges.items():
        ways[share, "model"] = lambda judge=judge: list(judge._model.score(ids, judge._labels))
        ways[share, "judge"] = lambda judge=judge: list(judge.judge(pairs))
        list(judge.judge(pairs[: max(2, len(pairs) // 8)]))
    times = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            times[way].append(timed(run, device))
    print(f"\n{layout}: {sum(map(len, ids)) / len(ids):.0f} tokens per pair; medians of {rounds} rounds")
    for (share, what), found in times.items():
        took = statistics.median(found)
        tokens, work = flops(model, ids, judges[share]._model._most, share)
        switch = "on " if share else "off"
        print(
            f"  sharing {switch}  {what}  {len(pairs) / took:8.1f} pairs/s  {tokens / len(ids):4.0f} "
            f"tokens computed  {work / took / 1e12:7.3g} TFLOP/s  {work / took / rate:5.1%} of the matrix rate"
        )
    if device.type == "cuda":
        print(f"  {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most")


if __name__ == "__main__":
    main()
