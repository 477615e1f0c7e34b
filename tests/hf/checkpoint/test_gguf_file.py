"""GGUF files as models: the same numbers, and one sentence for what is wrong."""

import struct

import pytest
import torch
from gguf import GGUFReader

import ropewalk as rw
from ropewalk import models
from ropewalk.errors import Unreadable
from ropewalk.folders import require_plausible
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model, fetch_tokenizer
from ropewalk.hf.checkpoint.gguf_file import require_gguf
from ropewalk.models import parts_of

TEXT = "def f(x):\n    return x**2  # é 中文\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The carried model as llama.cpp has it: under a larger base, which is a number of the file, and under YaRN."""
    places = {}
    for line in ("abf:new_base=40000", "yarn:factor=2"):
        model = fetch_model(models.DEFAULT, dtype=torch.float32)
        rw.extend(model, line, target_len=1024)
        place = tmp_path_factory.mktemp("gguf") / "out"
        rw.export(model, place, target="llama.cpp", target_len=1024, tokenizer=fetch_tokenizer(models.DEFAULT))
        places[line] = place / "model.gguf"
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


def test_a_schedule_that_transformers_would_drop_is_refused(exported):
    with pytest.raises(
        Unreadable, match=r"without a schedule of its own, .* got 'model.gguf with yarn'; take the folder"
    ):
        fetch_model(exported["yarn:factor=2"])


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


def test_divisors_of_pairs_are_refused(tmp_path):
    tensor = struct.pack("<Q", 17) + b"rope_freqs.weight" + struct.pack("<IQIQ", 1, 4, 0, 0)
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor)
    with pytest.raises(Unreadable, match=r"as Llama 3\.1 has"):
        require_gguf(tmp_path / "x.gguf")


def test_names(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"")
    assert parts_of(str(tmp_path / "x.gguf")) == (str(tmp_path), "x.gguf")
    assert parts_of("owner/name:x-Q8_0.gguf") == ("owner/name", "x-Q8_0.gguf")
    assert parts_of("owner/name") == ("owner/name", "")
    require_plausible(str(tmp_path / "x.gguf"))
    require_plausible("owner/name:x.gguf")
    with pytest.raises(Unreadable, match="a GGUF file, or a name on the hub"):
        require_plausible(str(tmp_path / "y.gguf"))
