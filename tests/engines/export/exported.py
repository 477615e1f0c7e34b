"""A model that is exported under an extension."""

import json

import gguf

from ropewalk import extended
from ropewalk.engines.export import export

TARGET = 128


def exported(model, place, text, **options):
    """The result, the rope parameters in the config, and the handle that was in force."""
    lift = options.pop("lift_windows", False)
    with extended(model, text, lift_windows=lift) as handle:
        result = export(model, place, **{"target": "vllm", "target_len": TARGET, **options})
    return result, json.loads((place / "config.json").read_text()), handle


def quantised(file, out, length=None):
    """A copy with weights of 8 bits, for texts of this length, which says of no export."""
    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "ropewalk.export"):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            value = length if length and field.name.endswith(".context_length") else field.contents()
            writer.add_key_value(field.name, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        kind = gguf.GGMLQuantizationType.Q8_0 if tensor.data.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quantize(tensor.data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
