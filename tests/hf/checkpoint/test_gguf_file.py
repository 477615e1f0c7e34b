"""GGUF files as models: the same numbers, and one sentence for what is wrong."""

import struct

import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from transformers.utils import logging

import ropewalk as rw
from ropewalk import models
from ropewalk.engines.check.check import check
from ropewalk.errors import Unreadable
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model, fetch_tokenizer
from ropewalk.hf.checkpoint.gguf_file import require_gguf, schedule_in
from ropewalk.hf.load_options import require_plausible
from ropewalk.models import parts_of

TEXT = "def f(x):\n    return x**2  # é 中文\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The carried model as llama.cpp has it: under a larger base, which is a number of the file, and under YaRN.

    In a folder with the same as transformers has it.
    """
    places = {}
    for line in ("abf:new_base=40000", "yarn:factor=2"):
        model = fetch_model(models.DEFAULT, dtype=torch.float32)
        rw.extend(model, line, target_len=1024)
        tokenizer, place = fetch_tokenizer(models.DEFAULT), tmp_path_factory.mktemp("gguf")
        for target in ("llama.cpp", "transformers"):
            rw.export(model, place / target, target=target, target_len=1024, tokenizer=tokenizer)
        places[line] = (place / "llama.cpp" / "model.gguf").rename(place / "transformers" / "model.gguf")
    return places


def test_the_numbers_are_those_of_the_folder_beside_it(exported):
    file = exported["abf:new_base=40000"]
    ids = fetch_tokenizer(file)(TEXT, return_tensors="pt").input_ids
    assert torch.equal(ids, fetch_tokenizer(models.DEFAULT)(TEXT, return_tensors="pt").input_ids)
    read, beside = fetch_model(file, dtype=torch.float32), fetch_model(file.parent, dtype=torch.float32)
    with torch.no_grad():
        got, expected = read(ids).logits, beside(ids).logits
    assert float((got - expected).abs().max() / expected.abs().max()) < 2e-2  # weights of 16 bits
    assert {part.name_or_path for part in (read, read.config, fetch_tokenizer(file))} == {str(file)}
    assert fetch_config(file).rope_parameters["rope_theta"] == 40000
    loaded = rw.load(file, dtype=torch.float32)
    with rw.extended(loaded, "yarn:factor=4"), torch.no_grad():
        assert loaded(ids).logits.isfinite().all()


@pytest.mark.parametrize("shown", [True, False])
def test_its_bar_is_shown_where_bars_are(exported, capfd, shown):
    before = logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
    try:
        fetch_model(exported["yarn:factor=2"])
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()
    assert ("quantizing" in capfd.readouterr().err) == shown


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids).logits


@pytest.mark.nightly
def test_its_schedule_is_not_lost(exported):
    """Of YaRN, whose scaling transformers leaves out."""
    file = exported["yarn:factor=2"]
    assert fetch_config(file).rope_parameters.items() >= schedule_in(file).items() >= {"rope_type": "yarn"}.items()
    ids = torch.arange(3, 900)[None] % 400
    got, expected = (logits_of(fetch_model(of, dtype=torch.float32), ids) for of in (file, file.parent))
    plain = logits_of(fetch_model(models.DEFAULT, dtype=torch.float32), ids)
    assert (got - expected).abs().max() < 0.03 * (plain - expected).abs().max()
    assert rw.inspect(file).own_schedule == rw.inspect(file.parent).own_schedule


@pytest.mark.parametrize("line", ["abf:new_base=40000", "yarn:factor=2"])
def test_an_engine_is_checked_with_it(exported, line):
    """By its own config; the folder beside it may hold another model."""
    of_file, of_folder = (
        check(place, engine="vllm", target_len=1024) for place in (exported[line], exported[line].parent)
    )
    (got,), (expected,) = of_file.layers, of_folder.layers
    assert got.engine.inv_freq == pytest.approx(expected.engine.inv_freq)
    assert got.engine.temperature == pytest.approx(expected.engine.temperature)
    assert str(exported[line]) in str(of_file)


def copied(file, place, *, fields=(), tensors=()):
    """A GGUF file with the contents of another, and more: (name, value, type of value), and (name, numbers)."""
    reader, writer = GGUFReader(file), GGUFWriter(place, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for field in fields:
        writer.add_key_value(*field)
    for name, numbers in tensors:
        writer.add_tensor(name, np.asarray(numbers, np.float32))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return place


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(("factor", "original"), [(8.0, 512), (32.0, 8192)])
def test_the_divisors_of_llama_3(exported, tmp_path, factor, original):
    """llama.cpp's converter writes them as a tensor, and no name or factor."""
    file = exported["abf:new_base=40000"]
    config = fetch_config(file.parent)
    rope = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"factor": factor, "original_max_position_embeddings": original}
    config.rope_parameters = {**config.rope_parameters, **rope}
    beside = fetch_model(file.parent, dtype=torch.float32, config=config)
    rotary = beside.model.rotary_emb
    plain = 40000.0 ** (-torch.arange(0, 1, 1 / len(rotary.inv_freq)))
    stretched = copied(file, tmp_path / "x.gguf", tensors=[("rope_freqs.weight", plain / rotary.inv_freq)])
    assert fetch_config(stretched).rope_parameters == pytest.approx(config.rope_parameters)
    ids = torch.arange(3, 900)[None] % 400
    read, unstretched = (fetch_model(of, dtype=torch.float32) for of in (stretched, file))
    torch.testing.assert_close(read.model.rotary_emb.inv_freq, rotary.inv_freq)
    got, expected = logits_of(read, ids), logits_of(beside, ids)
    assert (got - expected).abs().max() < 0.03 * (logits_of(unstretched, ids) - expected).abs().max()


def test_a_linear_schedule(exported, tmp_path):
    fields = [("llama.rope.scaling.type", "linear", GGUFValueType.STRING)]
    fields += [("llama.rope.scaling.factor", 2.0, GGUFValueType.FLOAT32)]
    file = copied(exported["abf:new_base=40000"], tmp_path / "x.gguf", fields=fields)
    assert fetch_config(file).rope_parameters == {"rope_theta": 40000.0, "rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("fields", "divisors", "named"),
    [
        ([("type", "longrope", GGUFValueType.STRING)], [], "longrope"),
        ([("type", "yarn", GGUFValueType.STRING)], [], "yarn"),  # it has no original length
        (
            [
                ("type", "yarn", GGUFValueType.STRING),
                ("original_context_length", 512, GGUFValueType.UINT32),
                ("yarn_log_multiplier", 0.1, GGUFValueType.FLOAT32),
            ],
            [],
            r"yarn, scaling\.yarn_log_multiplier",
        ),
        ([], range(1, 17), "divisors for each pair"),
    ],
)
def test_a_schedule_that_would_be_lost_is_refused(exported, tmp_path, fields, divisors, named):
    fields = [(f"llama.rope.scaling.{name}", *value) for name, *value in fields]
    tensors = [("rope_freqs.weight", list(divisors))] if divisors else []
    file = copied(exported["abf:new_base=40000"], tmp_path / "x.gguf", fields=fields, tensors=tensors)
    with pytest.raises(
        Unreadable, match=rf"YaRN or divisors; transformers would drop another, got 'x.gguf with {named}'"
    ):
        fetch_model(file)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.9999])
def test_a_file_that_breaks_off_in_a_tensor_is_refused_as_that(exported, tmp_path, share):
    whole = exported["yarn:factor=2"].read_bytes()
    (tmp_path / "x.gguf").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(Unreadable, match=r"a whole GGUF file, got .*x.gguf.*it ends or breaks off early"):
        fetch_config(tmp_path / "x.gguf")


def test_every_length_that_is_cut_off_is_refused(exported):
    file = exported["abf:new_base=40000"]
    whole, short = file.read_bytes(), file.parent / "cut.gguf"
    head = min(int(tensor.data_offset) for tensor in GGUFReader(file).tensors)
    for length in (0, 3, 4, 20, 100, 1000, head // 2, head - 200):
        short.write_bytes(whole[:length])
        with pytest.raises(Unreadable, match="GGUF file"):
            require_gguf(short)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"hello world, this is no model", "begins with the letters GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "at most 1,000,000 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60), "100,000 values"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "a whole GGUF file"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"a", 99), "types up to 12"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"a", 9, 8, 2**60), "a whole GGUF file"),
    ],
)
def test_what_was_made_to_exhaust_is_refused_at_once(tmp_path, head, words):
    (tmp_path / "x.gguf").write_bytes(head)
    with pytest.raises(Unreadable, match=words):
        fetch_model(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 4, 8, 0), "as a list of float32"),
        ((1, 2**60, 0, 0), "as a list of float32"),
        ((1, 4, 0, 9), "a whole GGUF"),
    ],
)
def test_divisors_that_are_none(tmp_path, shape, words):
    tensor = struct.pack("<Q", 17) + b"rope_freqs.weight" + struct.pack("<IQIQ", *shape)
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor)
    with pytest.raises(Unreadable, match=words):
        require_gguf(tmp_path / "x.gguf")


def written(place, architecture, words):
    """A file of one small tensor, as llama.cpp's package writes it."""
    file = GGUFWriter(place, architecture)
    file.add_block_count(1)
    file.add_context_length(128)
    file.add_embedding_length(16)
    file.add_head_count(2)
    file.add_feed_forward_length(16)
    if words is not None:
        file.add_tokenizer_model("gpt2")
        file.add_token_list(words)
        file.add_token_types([1] * len(words))
        file.add_token_merges([])
    file.add_tensor("token_embd.weight", np.zeros((2, 16), dtype=np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return place


@pytest.mark.parametrize("read", [fetch_config, fetch_model, fetch_tokenizer])
def test_an_architecture_that_transformers_does_not_read_is_named(tmp_path, read):
    file = written(tmp_path / "x.gguf", "starship", ["a", "b"])
    with pytest.raises(Unreadable) as refused:
        read(file)
    rule = "model must be a GGUF file of an architecture that transformers reads"
    assert str(refused.value) == f"{rule}, got '{file} of starship'; take the folder that it was made of"


@pytest.mark.parametrize("read", [fetch_config, fetch_model, fetch_tokenizer])
@pytest.mark.parametrize("words", [None, []])
def test_a_file_without_words_is_refused(tmp_path, read, words):
    file = written(tmp_path / "x.gguf", "llama", words)
    with pytest.raises(Unreadable, match=r"with words \(tokenizer.ggml.tokens\), got 'x.gguf, which has none'"):
        read(file)


def test_a_folder_that_has_only_a_file_names_it(tmp_path, exported):
    whole = tmp_path / "out"
    whole.mkdir()
    (whole / "config.json").write_text("{}")
    (whole / "model.gguf").write_bytes(exported["yarn:factor=2"].read_bytes())
    with pytest.raises(Unreadable, match=rf"{whole} holds its weights in a GGUF file; pass {whole}/model.gguf"):
        rw.load(whole)


def test_names(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"")
    assert parts_of(str(tmp_path / "x.gguf")) == (str(tmp_path), "x.gguf")
    assert parts_of("owner/name:x-Q8_0.gguf") == ("owner/name", "x-Q8_0.gguf")
    assert parts_of("owner/name") == ("owner/name", "")
    require_plausible(str(tmp_path / "x.gguf"))
    require_plausible("owner/name:x.gguf")
    with pytest.raises(Unreadable, match="a GGUF file, default, or a name on the hub"):
        require_plausible(str(tmp_path / "y.gguf"))
