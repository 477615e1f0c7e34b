"""A GGUF file under a schedule: what the new file says, whose bytes its tensors are, and what is refused."""

import errno
import json
import struct

import gguf
import numpy as np
import pytest
import torch
from gguf import GGUFReader
from transformers import AutoTokenizer

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, models
from ropewalk.cli.main import run
from ropewalk.errors import Conflict, RopewalkError, Unreadable
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model

from engines.export.exported import quantised
from hf.models import tiny

TRAINED, TARGET = 512, 2048
WORDS = 2048  # of the carried model's tokenizer


def written(place, name="llama", **changed):
    """The file of a small model, whose rotation is plain."""
    changed = {"vocab_size": WORDS, "max_position_embeddings": TRAINED, "num_hidden_layers": 2, **changed}
    model, tokenizer = tiny(name, **changed), AutoTokenizer.from_pretrained(models.DEFAULT)
    with rw.extended(model, "abf:new_base=20000"):
        rw.export(model, place, target="llama.cpp", target_len=TRAINED + 1, tokenizer=tokenizer)
    return quantised(place / "model.gguf", place / "X.gguf", TRAINED)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return written(tmp_path_factory.mktemp("llama") / "out")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return written(tmp_path_factory.mktemp("qwen") / "out", "qwen3")


def exported(source, out, line, **options):
    return rw.export(source, out, target="llama.cpp", extension=line, **{"target_len": TARGET, **options})


def read(file):
    reader = GGUFReader(file)
    tensors = {tensor.name: (tensor.tensor_type.name, tensor.data.tobytes()) for tensor in reader.tensors}
    return {name: field.contents() for name, field in reader.fields.items()}, tensors


def test_tensors_are_the_same_and_metadata_are_not(llama, tmp_path):
    said = exported(llama, tmp_path / "Y.gguf", "yarn")
    (before, tensors), (after, same) = read(llama), read(tmp_path / "Y.gguf")
    assert same == tensors
    assert {kind for kind, _ in same.values()} == {"Q8_0", "F32"}
    changed = {name: value for name, value in after.items() if before.get(name) != value and name[:4] != "GGUF"}
    assert changed.pop("ropewalk.export").startswith('{"trained_len": 512, "target_len": 2048')
    assert changed == {
        "llama.context_length": TARGET,
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": TRAINED,
    }
    assert before.keys() <= after.keys()
    assert (said.kind, said.command) == ("native", f"llama-server -m {tmp_path / 'Y.gguf'} -c {TARGET}")
    assert [path.name for path in tmp_path.iterdir()] == ["Y.gguf"]
    assert "FROM ./Y.gguf" in str(said)


def test_options_of_llama_cpp_are_named_where_they_say_it_all(llama, tmp_path):
    said = {line: str(exported(llama, tmp_path / f"{line[:3]}.gguf", line)) for line in ("yarn", "pi", "ntk", "llama3")}
    context = f"llama-server -m {llama} -c 2048 --override-kv llama.context_length=int:2048"
    assert f"{context} --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 512\n" in said["yarn"]
    assert f"{context} --rope-scaling linear --rope-scale 4\n" in said["pi"]
    assert f"{context} --rope-freq-base " in said["ntk"]
    assert "the same without this file" not in said["llama3"]


@pytest.mark.parametrize("line", ["by_parts", "llama3", "frequencies.ntk_mixed:factor=4"])
def test_divisors_are_a_tensor_and_the_file_is_a_model(llama, tmp_path, line):
    """Which transformers reads with its schedule, though it reads neither divisors nor the base 1."""
    said = exported(llama, tmp_path / "Y.gguf", line)
    fields, tensors = read(tmp_path / "Y.gguf")
    assert said.kind == "lowered"
    assert (fields["llama.rope.freq_base"], tensors["rope_freqs.weight"][0]) == (1.0, "F32")
    del tensors["rope_freqs.weight"]
    assert tensors == read(llama)[1]
    ids = torch.arange(3, 700)[None] % 400
    with torch.no_grad(), rw.extended(model := fetch_model(llama), line, target_len=TARGET):
        expected = model(ids).logits
        got = rw.load(tmp_path / "Y.gguf")(ids).logits
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    assert rw.check(tmp_path / "Y.gguf", engine="llama.cpp").is_same


def test_a_temperature_is_metadata_and_no_weight(llama, tmp_path):
    said = exported(llama, tmp_path / "Y.gguf", "longrope:factor=4")
    fields, _ = read(tmp_path / "Y.gguf")
    temperature = rw.load(tmp_path / "Y.gguf").model.rotary_emb.attention_scaling
    assert fields["llama.rope.scaling.attn_factor"] == pytest.approx(temperature)
    assert f"a temperature of {temperature**2:.4f} is in llama.rope.scaling.attn_factor" in str(said)
    assert rw.check(tmp_path / "Y.gguf", engine="llama.cpp").is_same


def test_a_dynamic_schedule_is_frozen(llama, tmp_path):
    said = exported(llama, tmp_path / "Y.gguf", "dynamic_ntk")
    assert said.kind == "frozen"
    assert "made static for 2,048 tokens" in said.notes
    assert "texts within 512 tokens change too; `ropewalk compare` measures by how much" in said.notes


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("rerope", r"rerope \(reach\) cannot be expressed"),
        ("by_parts:factor=4,low_turns=2,high_turns=8", "which is what llama.cpp knows of qwen3"),
        ("yarn:factor=4,high_turns=64", None),
    ],
)
def test_what_metadata_cannot_say_is_refused(qwen, tmp_path, line, match):
    with pytest.raises(RopewalkError, match=match):
        exported(qwen, tmp_path / "Y.gguf", line)
    assert list(tmp_path.iterdir()) == []


def test_a_stretched_file_is_stretched_from_its_trained_length(llama, tmp_path):
    once, again = tmp_path / "Y.gguf", tmp_path / "Z.gguf"
    exported(llama, once, "yarn")
    with pytest.raises(Conflict, match=r"already, from 512 to 2,048 tokens; take the file .* or add \+instead"):
        exported(once, again, "yarn", target_len=4096)
    exported(once, again, "yarn+instead", target_len=4096)
    fields, tensors = read(again)
    assert tensors == read(llama)[1]
    names = ("factor", "original_context_length")
    assert [fields[f"llama.rope.scaling.{name}"] for name in names] == [8.0, TRAINED]
    exported(llama, once, "by_parts", force=True)
    with pytest.raises(Conflict, match=r"2,048 tokens; take the file that it was made of$"):
        exported(once, again, "yarn+instead", target_len=4096, force=True)
    assert "stretched" in str(rw.check(once, engine="llama.cpp"))


def test_nothing_is_overwritten_unless_that_is_said(llama, tmp_path):
    (tmp_path / "Y.gguf").write_text("mine")
    with pytest.raises(InvalidValue, match=r"out must be new, got .*; choose another name; --force \(force=True\)"):
        exported(llama, tmp_path / "Y.gguf", "yarn")
    for name in ("Y", "Y.bin"):
        with pytest.raises(InvalidValue, match=r"out must be a file whose name ends with \.gguf"):
            exported(llama, tmp_path / name, "yarn")
    assert [path.name for path in tmp_path.iterdir()] == ["Y.gguf"]
    assert (tmp_path / "Y.gguf").read_text() == "mine"
    exported(llama, tmp_path / "Y.gguf", "yarn", force=True)
    assert read(tmp_path / "Y.gguf")[1] == read(llama)[1]
    with pytest.raises(InvalidValue, match="another file than the model"):
        exported(llama, llama, "yarn", force=True)


def test_a_full_disk_leaves_nothing(llama, tmp_path, monkeypatch):
    monkeypatch.setattr("ropewalk.engines.llama_cpp.gguf_to_gguf._copy", full)
    (tmp_path / "Y.gguf").write_text("mine")
    with pytest.raises(InvalidValue, match=r"written whole, got .*No space left.*; make room"):
        exported(llama, tmp_path / "Y.gguf", "yarn", force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def damaged(whole, how):
    big_endian = b"GGUF" + struct.pack(">I", 3) + whole[8:]
    return {"cut": whole[:-5000], "other": b"PK" + whole, "turned": big_endian, "empty": b""}[how]


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("cut", "a whole GGUF file, got .*it ends or breaks off early"),
        ("other", "begins with the letters GGUF"),
        ("empty", "begins with the letters GGUF"),
        ("turned", "a little-endian GGUF file, got .*X.gguf, which is big-endian"),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(llama, tmp_path, how, match):
    (tmp_path / "X.gguf").write_bytes(damaged(llama.read_bytes(), how))
    with pytest.raises(Unreadable, match=match):
        exported(tmp_path / "X.gguf", tmp_path / "Y.gguf", "yarn")
    assert [path.name for path in tmp_path.iterdir()] == ["X.gguf"]


def test_one_of_several_files_is_refused(llama, tmp_path):
    part = tmp_path / "model-00001-of-00003.gguf"
    part.write_bytes(llama.read_bytes())
    with pytest.raises(Unreadable, match=r"in one piece, got 'model-00001-of-00003\.gguf, which is one of 3'; llama"):
        exported(part, tmp_path / "Y.gguf", "yarn")


def test_an_architecture_that_was_not_run_is_refused(tmp_path):
    file = tmp_path / "X.gguf"
    writer = gguf.GGUFWriter(file, "gemma2")
    for add in (writer.add_block_count, writer.add_head_count, writer.add_head_count_kv):
        add(2)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(16)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(DoesNotFit, match=r"gemma2 was not run in llama\.cpp under a schedule of its metadata"):
        exported(file, tmp_path / "Y.gguf", "yarn")


def test_a_file_is_asked_for_all_that_it_needs(llama, tmp_path):
    for options, match in (
        ({"extension": None}, "a GGUF file needs extension"),
        ({"target": "vllm", "extension": "yarn"}, r"becomes one for llama\.cpp, not for vllm"),
    ):
        with pytest.raises(InvalidValue, match=match):
            rw.export(llama, tmp_path / "Y.gguf", **{"target": "llama.cpp", "target_len": TARGET, **options})
    with pytest.raises(InvalidValue, match="under an extension, or the name of a GGUF file"):
        rw.export("folder", tmp_path / "Y.gguf", target="llama.cpp", extension="yarn")
    with pytest.raises(InvalidValue, match="extension and force are for a GGUF file"):
        rw.export(tiny("llama"), tmp_path / "Y", target="llama.cpp", extension="yarn")


def test_a_config_needs_no_weights(llama):
    """Nor the words: of the file, only what stands before them is read."""
    config = fetch_config(llama)
    assert (config.vocab_size, config.num_hidden_layers, config.max_position_embeddings) == (WORDS, 2, TRAINED)


def test_the_command(llama, tmp_path, capsys, monkeypatch):
    """A GGUF file goes to llama.cpp unless another engine is named."""
    monkeypatch.chdir(tmp_path)
    line = ["export", str(llama), "yarn", "--to", "2k"]
    assert run(line) == 0
    assert "llama-server -m X-yarn-2k.gguf -c 2048\n" in capsys.readouterr().out
    assert run(line) == 2
    assert "out must be new, got 'X-yarn-2k.gguf'; choose another name; --force" in capsys.readouterr().err
    assert run([*line, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == "X-yarn-2k.gguf"
    assert run(["check", "X-yarn-2k.gguf", "--engine", "llama.cpp"]) == 0
    assert run(["export", str(llama), "yarn", "--to", "2k", "-o", "folder", "--target", "llama.cpp"]) == 2
    assert "--out must be a file whose name ends with .gguf, got 'folder'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["X-yarn-2k.gguf"]
