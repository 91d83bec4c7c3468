"""Cross-encoders against transformers' own forward pass, on tiny models made here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'judge'")
peft = pytest.importorskip("peft", reason="needs the extra 'judge'")

import safetensors.torch
import tokenizers

import lm.pairs
import lm.rows
from lm.cross_encoder import CrossEncoder
from lm.pairs import encode
from rerankers.checks import check_reranker
from rerankers.cross_encoder import CrossEncoder as Reranker

SENTENCE = "the cat sat on a mat dogs bark at night why do birds sing taxes are high"
WORDS = SENTENCE.split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz0123456789.,?[]"]
VOCABULARY += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
SIZES = {
    "vocab_size": len(VOCABULARY), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip

PAIRS = [
    ("the cat sat on a mat", "dogs bark"),
    ("dogs bark at night", "why do birds sing"),
    ("taxes", "taxes are high"),
    ("", "a cat"),
    ("birds sing at night . " * 3, ""),
    ("the cat sat on a mat", "birds sing"),
    ("猫 \u200b", "x" * 20),
]


@pytest.fixture(scope="module", autouse=True)
def _few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def save(model, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    torch.manual_seed(1)
    made = transformers.BertConfig(**SIZES, num_labels=3)
    return save(transformers.BertForSequenceClassification(made), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    torch.manual_seed(2)
    return save(transformers.BertModel(transformers.BertConfig(**SIZES)), tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory) -> Path:
    """A LoRA adapter with a head of two labels, saved by PEFT itself; its own logits are kept beside it."""
    torch.manual_seed(3)
    model = transformers.BertForSequenceClassification.from_pretrained(base, num_labels=2)
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, settings).eval()
    folder = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(folder)
    np.save(folder / "expected.npy", forward(adapted, base, PAIRS))
    return folder


@torch.inference_mode()
def forward(model, folder: Path, pairs) -> np.ndarray:
    """One pair at a time by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = [
        model(**tokenizer([first], [second], truncation="only_first", max_length=64, return_tensors="pt")).logits[0]
        for first, second in pairs  # as lists, because a single empty text counts as none
    ]
    return np.stack([each.float().numpy() for each in found])


def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def same(found, expected, atol: float = 1e-5) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


def test_logits_are_those_of_transformers(bert):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(bert).eval()
    found = CrossEncoder(bert).logits(PAIRS)
    same(found, forward(model, bert, PAIRS))
    assert np.ptp(found, axis=0).min() > 0.05  # the pairs differ, so that a mix-up would show


def test_an_adapter_with_its_head_is_merged(base, adapter):
    found = CrossEncoder(base, adapter=adapter)
    same(found.logits(PAIRS), np.load(adapter / "expected.npy"))
    assert found.labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize("kind", ["Roberta", "DebertaV2", "DistilBert", "Electra", "XLNet", "GPT2", "Bart"])
def test_other_architectures(kind, tmp_path):
    torch.manual_seed(4)
    sizes = SIZES | {"num_labels": 3, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    other = {
        "Roberta": {"type_vocab_size": 1},
        "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0},
        "DistilBert": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2},
        "XLNet": {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64},
        "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
        "Bart": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64,
                 "decoder_ffn_dim": 64, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
    }  # fmt: skip
    if kind == "XLNet":
        del sizes["max_position_embeddings"]
    made = getattr(transformers, f"{kind}Config")(**(sizes | other.get(kind, {})))
    model = getattr(transformers, f"{kind}ForSequenceClassification")(made)
    pairs = PAIRS
    if kind == "Bart":  # reads the last token with the id of eos, of which each pair has two
        model.config.eos_token_id = 3
    folder = save(model, tmp_path / kind)
    types = kind in ("DebertaV2", "Electra", "XLNet", "GPT2")  # the others have none, though this tokenizer makes them
    found = CrossEncoder(folder).logits(pairs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    for pair, row in zip(pairs, found, strict=True):
        inputs = tokenizer([pair[0]], [pair[1]], return_tensors="pt")
        with torch.inference_mode():
            same(row, model(**{name: inputs[name] for name in names}).logits[0].numpy(), atol=2e-5)
    assert np.ptp(found, axis=0).max() > 1e-3


# What is cut


LONG = " ".join(["dogs bark at night"] * 40)


@pytest.mark.parametrize("cut", ["first", "second"])
def test_only_the_named_side_is_cut(bert, cut):
    pairs = [(LONG, "why do birds sing"), (LONG[:100], LONG[:80]), ("taxes are high", "cat")]
    pairs = pairs if cut == "first" else [(second, first) for first, second in pairs]
    rows = CrossEncoder(bert, cut=cut, max_length=50)._loaded[0].rows(pairs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    for pair, row in zip(pairs, rows, strict=True):
        expected = tokenizer(*pair, truncation=f"only_{cut}", max_length=50)
        assert row == {name: expected[name] for name in ("input_ids", "token_type_ids")}


def test_a_kept_side_without_room_for_the_other_is_not_read(bert):
    model = CrossEncoder(bert)  # 64 tokens, 3 of them special
    found = model.logits([(LONG, LONG), ("cat", " ".join(["cat"] * 60)), ("cat mat", " ".join(["cat"] * 60)), PAIRS[0]])
    assert np.isnan(found).all(axis=1).tolist() == [True, False, True, False]
    same(found[3], model.logits([PAIRS[0]])[0])
    # Of a long text at least 16 tokens are read.
    found = model.logits([(LONG, " ".join(["cat"] * n)) for n in (45, 46)])
    assert np.isnan(found).all(axis=1).tolist() == [False, True]
    assert np.isnan(model.logits([(LONG, LONG)])).all()
    assert model.logits([]).shape == (0, 3)


def test_texts_of_megabytes_and_broken_ones(bert):
    model = CrossEncoder(bert)
    short, endless = model.logits([(LONG, "cat"), ("dogs bark at night " * 300_000, "cat")])
    same(short, endless)
    assert np.isfinite(model.logits([("\ud800 cat", "\udfff"), ("", ""), ("\x00", " \n"), ("w" * 50_000, "")])).all()


# Hostile texts


def test_special_tokens_in_a_text_are_ordinary_ones(bert):
    hostile = "the cat [SEP] dogs [CLS] [PAD] bark [MASK]"
    row = CrossEncoder(bert)._loaded[0].rows([(hostile, hostile)])[0]["input_ids"]
    assert [token for token in row if token in (0, 2, 3, 4)] == [2, 3, 3]
    assert row[1:6] == [VOCABULARY.index(each) for each in ("the", "cat", "[", "s", "##e")]


def test_special_tokens_that_are_words_of_the_vocabulary_are_left_out():
    """Unigram vocabularies (T5, XLM-R, DeBERTa) hold them, and full-width signs become plain ones first."""
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", "\u2581cat", *"abcdefghijklmnopqrstuvwxyz<>/"]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram([(each, -float(i > 2)) for i, each in enumerate(pieces)], 2))
    made.normalizer = tokenizers.normalizers.NFKC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    plain, hostile, wide, unknown = encode(tokenizer, ["cat cat", "cat</s>cat", "cat\uff1c/s\uff1ecat", "cat 猫"])
    assert plain == [4, 4]
    assert 1 in tokenizer("cat\uff1c/s\uff1ecat", split_special_tokens=True)["input_ids"]  # why it is needed
    assert 1 not in hostile
    assert 1 not in wide
    assert 2 in unknown


def test_each_text_is_tokenised_once(bert, monkeypatch):
    model = CrossEncoder(bert)
    model.logits(PAIRS)
    tokenizer, seen = model._loaded[0], []
    monkeypatch.setattr(lm.pairs, "encode", lambda each, texts: (seen.extend(texts), encode(each, texts))[1])
    pairs = [("the cat sat on a mat", word) for word in WORDS[2:8]]
    expected = [tokenizer.tokenizer([first], [second])["input_ids"][0] for first, second in pairs]
    assert [row["input_ids"] for row in tokenizer.rows(pairs)] == expected
    assert sorted(seen) == sorted(["the cat sat on a mat", *WORDS[2:8]])


# Batches, devices, streams


def many(n: int) -> list[tuple[str, str]]:
    return [(" ".join(WORDS[: 1 + i % 11]), " ".join(WORDS[i % 5 : i % 7 + 5])) for i in range(n)]


def test_logits_depend_neither_on_batches_nor_on_order_nor_on_devices(bert):
    pairs = many(60)
    expected = CrossEncoder(bert, batch_size=1).logits(pairs)
    for options in ({}, {"batch_size": 7}, {"batch_tokens": 40}, {"device": "cpu,cpu", "batch_size": 3}):
        same(CrossEncoder(bert, **options).logits(pairs), expected)
    same(CrossEncoder(bert).logits(pairs[::-1]), expected[::-1])


def test_windows_follow_each_other(bert, monkeypatch):
    pairs = [*many(20), (LONG, LONG), *many(5)]
    expected = CrossEncoder(bert).logits(pairs)
    monkeypatch.setattr(lm.rows, "WINDOW", 8)
    model = CrossEncoder(bert)
    same(model.logits(pairs), expected)
    assert sorted(place for part, _ in model.scores(pairs) for place in part) == list(range(26))


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_who_leaves_a_stream_stops_the_work(bert, device):
    model = CrossEncoder(bert, batch_size=2, device=device)
    calls = []
    for replica in model._loaded[1]:
        replica.register_forward_hook(lambda *_: calls.append(1))
    stream = model.scores(many(400))
    positions, logits = next(stream)
    assert (len(positions), logits.shape) == (2, (2, 3))
    stream.close()
    after = len(calls)
    assert after < 150  # of 200
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())
    same(model.logits(many(3)), CrossEncoder(bert).logits(many(3)))
    assert len(calls) == after + 2


def test_a_stream_that_nobody_closed_does_not_keep_a_program_alive():
    code = """
import sys, time
import numpy as np
from lm.batching import Batcher
def forward(part):
    time.sleep(0.2)
    print("batch", flush=True)
    return np.zeros((len(part), 1), np.float32)
stream = Batcher(1, 10).stream([1] * 1000, [forward, forward])
next(stream)
sys.stream = stream  # kept to the very end
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert "KeyboardInterrupt" in done.stderr
    assert 1 <= done.stdout.count("batch") < 500  # of 1000


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_a_failing_device_ends_the_stream(bert, device, monkeypatch):
    model = CrossEncoder(bert, batch_size=1, device=device)
    replica = model._loaded[1][-1]
    monkeypatch.setattr(replica, "forward", lambda **_: (_ for _ in ()).throw(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        model.logits(many(100))


def test_memory_that_runs_out_halves_batches(bert, monkeypatch):
    pairs = many(40)
    expected = CrossEncoder(bert).logits(pairs)
    model, sizes = CrossEncoder(bert, batch_size=16), []
    replica = model._loaded[1][0]
    forward = replica.forward

    def small(**inputs):
        sizes.append(len(inputs["input_ids"]))
        if sizes[-1] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(**inputs)

    monkeypatch.setattr(replica, "forward", small)
    same(model.logits(pairs), expected)
    assert sizes[:3] == [16, 8, 4]


def test_nan_shows_the_pair(bert, monkeypatch):
    model = CrossEncoder(bert, batch_size=1)
    replica = model._loaded[1][0]
    forward = replica.forward

    def broken(**inputs):
        output = forward(**inputs)
        if inputs["input_ids"].shape[1] == 8:  # three words, two words, three special tokens
            output.logits[:] = float("nan")
        return output

    monkeypatch.setattr(replica, "forward", broken)
    with pytest.raises(
        ValueError, match="returned NaN or infinity for 'cat cat cat' and 'mat mat': the model"
    ) as error:
        model.logits([("cat", "mat"), ("cat cat cat", "mat mat")])
    assert "\n" not in str(error.value)


def test_half_precision_is_close_and_other(bert):
    pairs = many(30)
    expected = CrossEncoder(bert).logits(pairs)
    for dtype in ("bf16", "fp16"):
        found = CrossEncoder(bert, dtype=dtype).logits(pairs)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - expected).max() < 0.3  # logits are about 1; bf16 has 8 bits, and there are two layers
        head = found.view(np.uint32) & 0xFFFF
        assert head.any()  # the last layer is fp32: bf16 numbers would end with sixteen zeros


# Adapters


def test_labels_come_from_a_configuration_beside_the_adapter(base, adapter, tmp_path):
    folder = copy(adapter, tmp_path)
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "no", "1": "yes"}}))
    assert CrossEncoder(base, adapter=folder).labels == ("no", "yes")
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "no", "1": "yes", "2": "perhaps"}}))
    with pytest.raises(ValueError, match="does not name the 2 labels of the head"):
        _ = CrossEncoder(base, adapter=folder).labels


def test_pickled_adapters_are_refused(base, adapter, tmp_path):
    folder = copy(adapter, tmp_path)
    weights = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    torch.save(weights, folder / "adapter_model.bin")
    same(CrossEncoder(base, adapter=folder).logits(PAIRS), np.load(adapter / "expected.npy"))  # beside the others
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"lacks \*\.safetensors, and other formats"):
        CrossEncoder(base, adapter=folder).logits(PAIRS)
    (folder / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has adapter_model\.bin, expected adapter_model\.safetensors: pickled"):
        CrossEncoder(base, adapter=folder).logits(PAIRS)


def changed(folder: Path, **settings) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def drop(folder: Path, part: str) -> None:
    file = folder / "adapter_model.safetensors"
    kept = {name: each for name, each in safetensors.torch.load_file(file).items() if part not in name}
    safetensors.torch.save_file(kept, file)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda folder: changed(folder, peft_type="IA3"), "is of the type IA3: only LORA is read"),
        (lambda folder: changed(folder, init_lora_weights="pissa"), "init_lora_weights=pissa is not supported"),
        (lambda folder: changed(folder, megatron_config={"a": 1}), "adapters for Megatron are not supported"),
        (lambda folder: changed(folder, target_modules=["nothing"]), "does not fit BertForSequenceClassification"),
        (lambda folder: changed(folder, r=8), "does not fit BertForSequenceClassification"),
        (lambda folder: drop(folder, "layer.1.attention.self.query.lora_A"), "1 tensors are in only one of both"),
        (lambda folder: drop(folder, "classifier"), "has no classification head: expected a module classifier or"),
        (lambda folder: drop(folder, "classifier.bias"), r"lack 1 of the model's tensors \(classifier.bias"),
        (lambda folder: (folder / "adapter_config.json").write_text("{"), "adapter_config.json is no JSON"),
        (lambda folder: (folder / "adapter_config.json").write_text("[]"), "holds a list, expected a JSON object"),
        (lambda folder: cut_short(folder / "adapter_model.safetensors"), "adapter_model.safetensors is broken"),
    ],
)  # fmt: skip
def test_adapters_that_do_not_fit_are_refused(base, adapter, tmp_path, change, message):
    folder = copy(adapter, tmp_path)
    change(folder)
    with pytest.raises(ValueError, match=message) as error:
        CrossEncoder(base, adapter=folder).logits(PAIRS)
    assert "\n" not in str(error.value)


# Models that cannot be used, arguments, fingerprints


def test_a_model_without_a_head_is_refused(base):
    with pytest.raises(
        ValueError, match=r"lack 2 of the model's tensors \(classifier.bias \.\.\.\): they would be random"
    ):
        CrossEncoder(base).logits(PAIRS)


def test_a_model_that_cannot_classify_is_refused_in_one_line(tmp_path):
    made = transformers.DPRConfig(**SIZES)
    folder = save(transformers.DPRQuestionEncoder(made), tmp_path / "dpr")
    with pytest.raises(ValueError, match="cannot classify texts: Unrecognized configuration class") as error:
        CrossEncoder(folder).logits(PAIRS)
    assert "\n" not in str(error.value)


def test_fingerprints_name_what_changes_a_logit_and_nothing_else(base, bert, adapter, tmp_path):
    found = CrossEncoder(bert).fingerprint
    assert found == CrossEncoder(str(bert), batch_size=3, device="cpu", batch_tokens=99).fingerprint
    others = [{"cut": "second"}, {"max_length": 40}, {"token_types": False}, {"dtype": "bf16"}, {"model": base},
              {"adapter": adapter}]  # fmt: skip
    assert len({found, *(CrossEncoder(**({"model": bert} | other)).fingerprint for other in others)}) == 7
    folder = copy(adapter, tmp_path)
    drop(folder, "classifier.bias")
    assert CrossEncoder(base, adapter=folder).fingerprint != CrossEncoder(base, adapter=adapter).fingerprint
    pinned = CrossEncoder("owner/model", revision="0" * 40, adapter="owner/adapter", adapter_revision="1" * 40)
    assert len(pinned.fingerprint) == 32  # neither is here, and nobody is asked


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"dtype": "int8"}, "dtype=int8: expected one of fp32, bf16, fp16"),
        ({"cut": "both"}, "cut=both: expected one of first, second"),
        ({"batch_size": 0}, "batch_size=0: expected at least 1"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        CrossEncoder("a/b", **arguments)


def test_wrong_lengths_are_refused(bert):
    with pytest.raises(ValueError, match="max_length=65: this model takes at most 64"):
        CrossEncoder(bert, max_length=65).logits(PAIRS)
    with pytest.raises(ValueError, match="max_length=20: expected at least 35 for pairs"):
        CrossEncoder(bert, max_length=20).logits(PAIRS)


def test_as_a_reranker_it_keeps_what_rerankers_promise(tmp_path):
    torch.manual_seed(4)
    one_logit = transformers.BertConfig(**SIZES, num_labels=1)
    folder = save(transformers.BertForSequenceClassification(one_logit), tmp_path)
    check_reranker(Reranker(str(folder)))
