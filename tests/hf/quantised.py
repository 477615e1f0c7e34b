"""The formats of quantised weights that load on a CPU, each made here of one small model."""

import functools

import pytest
from transformers import AutoModelForCausalLM

from hf.models import tiny

SHAPE = {"num_hidden_layers": 2, "intermediate_size": 128}  # bitsandbytes needs multiples of 64


def plain(folder):
    """The model before quantisation, in a folder."""
    place = folder / "plain"
    if not place.exists():
        tiny("llama", **SHAPE).save_pretrained(place)
    return place


def loaded(folder, config):
    return AutoModelForCausalLM.from_pretrained(plain(folder), quantization_config=config)


def torchao(folder, name="Int8WeightOnlyConfig"):
    formats = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    from transformers import TorchAoConfig

    return loaded(folder, TorchAoConfig(getattr(formats, name)()))


def torchao_in_memory(folder):
    formats = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    model = AutoModelForCausalLM.from_pretrained(plain(folder))
    formats.quantize_(model, formats.Int8WeightOnlyConfig())
    return model


def bitsandbytes(folder, **values):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import BitsAndBytesConfig

    return loaded(folder, BitsAndBytesConfig(**values))


def quanto(folder):
    pytest.importorskip("optimum.quanto", reason="optimum-quanto is not installed")
    from transformers import QuantoConfig

    return loaded(folder, QuantoConfig(weights="int8"))


def compressed_tensors(folder):
    """Four bits in groups of 32, packed as llm-compressor writes them."""
    package = pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    place = folder / "compressed"
    if not place.exists():
        model = AutoModelForCausalLM.from_pretrained(plain(folder))
        parts = package.quantization
        scheme = parts.preset_name_to_scheme("W4A16", ["Linear"])
        scheme.weights.group_size = 32
        groups = {"group_0": scheme}
        config = parts.QuantizationConfig(config_groups=groups, ignore=["lm_head"], format="pack-quantized")
        parts.apply_quantization_config(model, config)
        for module in model.modules():
            if hasattr(module, "weight_scale"):
                scale, weight = module.weight_scale, module.weight.detach()
                scale.data.copy_(weight.reshape(len(weight), scale.shape[1], -1).abs().amax(-1) / 7)
                module.quantization_status = parts.QuantizationStatus.FROZEN
        compressor = package.compressors.ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        model.save_pretrained(place)
        compressor.update_config(place)
    return AutoModelForCausalLM.from_pretrained(place)


FORMATS = {
    "torchao, int8 weights": torchao,
    "torchao, int8 weights and activations": functools.partial(torchao, name="Int8DynamicActivationInt8WeightConfig"),
    "torchao, `quantize_` in memory": torchao_in_memory,
    "bitsandbytes, 8 bits": functools.partial(bitsandbytes, load_in_8bit=True, llm_int8_threshold=0.0),
    "bitsandbytes, 4 bits (nf4)": functools.partial(bitsandbytes, load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "compressed-tensors, 4 bits": compressed_tensors,
    "quanto, int8 weights": quanto,
}


def quantised(kind, folder):
    """A fresh model, in evaluation mode."""
    return FORMATS[kind](folder).eval()
