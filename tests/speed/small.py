"""The judge ``small`` beside a plain forward of its merged model: ``python tests/speed/small.py [ADAPTER [PAIRS]]``.

Plain: transformers in fp32, batches of 32 in the order given, padded to the longest of the batch. The pairs are those
of a run: each of a question's passages with two of its perspectives, questions in order (Perspectrum's texts where the
shared data is present, synthetic ones else). All ways are timed in turns in one run, medians are compared; labels
(threshold 0.5 after calibration) are compared with the plain ones. The int8 row is PyTorch's dynamic quantisation,
measured for whoever wonders; the judge does not offer it.
"""

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from corpora.types import Passage, Perspective, Question
from evaluator.judges.small import FOLDER, Small, read_calibration
from evaluator.types import Pair, document
from lm.cross_encoder import _load

PERSPECTRUM = Path(__file__).parents[3] / "shared" / "data" / "perspectrum"
ROUNDS = 3


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The records of a file of Perspectrum."""
    with (PERSPECTRUM / name).open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def perspectrum() -> Iterator[Pair]:
    """Each supporting passage of a question with the first two perspectives of that question."""
    texts = {row["_id"]: " ".join(row["text"].split()[:100]) for row in lines("corpus.jsonl")}
    linked = defaultdict(dict)
    for line in (PERSPECTRUM / "qrels.txt").read_text().splitlines():
        question, _, passage, _ = line.split()
        linked[question][passage] = texts[passage]
    for row in lines("questions.jsonl"):
        views = [Perspective(each["perspective_id"], each["text"]) for each in row["perspectives"][:2]]
        question = Question(row["question_id"], row["question"], tuple(views))
        for name, text in linked[row["question_id"]].items():
            yield from (Pair(question, view, Passage(name, text)) for view in views)


def synthetic() -> Iterator[Pair]:
    """Passages of 20 to 120 words, two perspectives of 10 words each."""
    rng = np.random.default_rng(0)
    words = np.array(["law", "tax", "school", "people", "work", "health", "money", "good", "bad", "less", "harm"])
    for i in range(100_000):
        text = " ".join(rng.choice(words, rng.integers(20, 121)))
        views = [Perspective(f"{i}.{j}", " ".join(rng.choice(words, 10))) for j in range(2)]
        yield from (Pair(Question(str(i), "Why?", tuple(views)), view, Passage(str(i), text)) for view in views)


def plain(pairs: list[Pair], tokenizer: Any, model: Any, length: int) -> NDArray[np.float64]:
    """Logits by transformers alone, 32 pairs at a time as they come."""
    found = []
    for start in range(0, len(pairs), 32):
        part = pairs[start : start + 32]
        inputs = tokenizer(
            [document(each.passage) for each in part], [each.perspective.text for each in part],
            padding=True, truncation="only_first", max_length=length, return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            found.append(model(**inputs).logits[:, 0].float().numpy())
    return np.concatenate(found).astype(np.float64)


def judged(pairs: list[Pair], judge: Small) -> NDArray[np.float64]:
    """Probabilities by the judge."""
    found = np.full(len(pairs), np.nan)
    for position, judgement in judge.judge(pairs):
        found[position] = judgement.probability
    return found


def main() -> None:
    """Times all ways in turns and prints a table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    source = perspectrum() if PERSPECTRUM.is_dir() else synthetic()
    pairs = [pair for pair, _ in zip(source, range(wanted), strict=False)]
    judges = {dtype: Small(adapter=folder, dtype=dtype, device="cpu") for dtype in ("fp32", "bf16")}
    encoder = judges["fp32"]._encoder
    tokenizer: Any = AutoTokenizer.from_pretrained(encoder._source.folder)
    model = _load(encoder._source.folder, encoder.config, folder, torch.float32)
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    slope, intercept = read_calibration(folder)

    def chances(logits: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 / (1 + np.exp(-(slope * logits + intercept)))

    ways: dict[str, Callable[[list[Pair]], NDArray[np.float64]]] = {
        "plain fp32": lambda its: chances(plain(its, tokenizer, model, 256)),
        "plain int8": lambda its: chances(plain(its, tokenizer, quantised, 256)),
        "small fp32": lambda its: judged(its, judges["fp32"]),
        "small bf16": lambda its: judged(its, judges["bf16"]),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, NDArray[np.float64]] = {}
    for way in ways.values():
        way(pairs[:32])
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            found[name] = way(pairs)
            times[name].append(time.perf_counter() - start)
    gold = found["plain fp32"]
    print(f"{len(pairs)} pairs, {torch.get_num_threads()} threads, medians of {ROUNDS} rounds in turns")
    print(f"{'':12} {'pairs/s':>8} {'times plain':>12} {'labels flipped':>15} {'largest change':>15}")
    base = statistics.median(times["plain fp32"])
    for name, values in found.items():
        rate, change = statistics.median(times[name]), np.abs(values - gold)
        flips = int(((values >= 0.5) != (gold >= 0.5)).sum())
        print(f"{name:12} {len(pairs) / rate:8.1f} {base / rate:12.2f} {flips:15d} {change.max():15.5f}")
    print(f"called positive (plain fp32): {(gold >= 0.5).mean():.1%}")


if __name__ == "__main__":
    main()
