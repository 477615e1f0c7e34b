"""What `check` reads of a checkpoint; rope parameters that are wrong are refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ropewalk.engines.layer_plan import admit_methods
from ropewalk.engines.llama_cpp.rules import TENSOR
from ropewalk.engines.rules.rotation import RopeConfig
from ropewalk.engines.rules.standard import ROPE_FREQS
from ropewalk.engines.rules.statement import Stretch, language_model_key, stretch_in
from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.extension.extension import Extension
from ropewalk.extension.outside import admit, files_in, is_known
from ropewalk.extension.parsing import notation_of
from ropewalk.files import holds, read_record
from ropewalk.hf.checkpoint.closed_config import FILE, SENTENCE, is_closed
from ropewalk.hf.checkpoint.fetch import ALIKE, fetch_config, fetch_values
from ropewalk.hf.checkpoint.gguf_file import USUAL_BASE, read_head
from ropewalk.hf.load_options import UNSTATED, LoadOptions, require_plausible
from ropewalk.hf.probe.facts import TrainedLengths, known_length, lengths_of, parts_of
from ropewalk.hf.probe.fope import require_rotation
from ropewalk.hf.probe.trained_lengths import DUAL_CHUNK
from ropewalk.models import GGUF

# The rope parameters of a config, checked before any formula sees them: one sentence for a wrong value.
#
# The ends of the ranges are far outside what models have; within them every formula gives finite numbers.


TOKEN_LIMIT = 10**12  # tokens
LARGE, SMALLEST_NUMBER = 1e6, 1e-6
# `ropewalk export` divides by 1e20 where a pair does not rotate; tokenizers without a length state 1e30.
LARGEST_NUMBER = 1e31
LENGTH = "original_max_position_embeddings"
# Keys that configs state as null where they mean that there is none.
MAY_BE_NULL = frozenset(
    ("attention_factor", "mscale", "mscale_all_dim", "short_mscale", "long_mscale", LENGTH, "type", "mrope_section")
)
# Without these a schedule has no table.
NEEDED = {"llama3": ("low_freq_factor", "high_freq_factor"), "longrope": ("short_factor", "long_factor")}
LENGTHS = ("model_max_length", "max_sequence_length", "seq_length", "max_seq_len")  # which engines read first
QUERY_SCALE = "llama_4_scaling"
LISTS = ("short_factor", "long_factor")


def _is_number(value: Any, first: float, last: float) -> bool:
    """Whether a value is a finite number between two ends, both included."""
    return isinstance(value, int | float) and not isinstance(value, bool) and first <= value <= last


def _is_whole(value: Any, first: int, last: int) -> bool:
    return _is_number(value, first, last) and value == int(value)


Rule = tuple[str, Callable[[Any], bool]]
ABOVE_0: Rule = ("a number above 0 and at most 1,000,000", lambda value: _is_number(value, SMALLEST_NUMBER, LARGE))
FROM_0: Rule = ("a number from 0 to 1,000", lambda value: _is_number(value, 0, 1000))
TEXT: Rule = ("a name", lambda value: isinstance(value, str) and bool(value))
LIST: Rule = ("a list of numbers, one for each pair", lambda value: isinstance(value, list | tuple))
FLAG: Rule = ("true or false", lambda value: isinstance(value, bool))
TOKENS: Rule = ("a whole number of tokens, 2 at least", lambda value: _is_whole(value, 2, TOKEN_LIMIT))
RULES: dict[str, Rule] = {
    "rope_type": TEXT,
    "type": TEXT,
    "rope_theta": ("a number above 1", lambda value: _is_number(value, 1 + SMALLEST_NUMBER, LARGEST_NUMBER)),
    "factor": ("a number from 1 to 1,000,000", lambda value: _is_number(value, 1, LARGE)),
    "partial_rotary_factor": ("a number above 0 and at most 1", lambda value: _is_number(value, SMALLEST_NUMBER, 1)),
    LENGTH: TOKENS,
    **dict.fromkeys(("attention_factor", "attn_factor", "short_mscale", "long_mscale", "alpha"), ABOVE_0),
    **dict.fromkeys(("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"), ABOVE_0),
    **dict.fromkeys(("mscale", "mscale_all_dim", "llama_4_scaling_beta", "extrapolation_factor"), FROM_0),
    **dict.fromkeys(("truncate", "apply_yarn_scaling", "mrope_interleaved"), FLAG),
    **dict.fromkeys(LISTS, LIST),
}


def require_object(parameters: Any) -> None:
    """Refuse rope parameters that are no object of keys."""
    if not isinstance(parameters, Mapping):
        raise InvalidValue("config.rope_parameters", "an object of keys and values", parameters)
    for key, (rule, _) in RULES.items():
        if isinstance(parameters.get(key), Mapping):  # which would be taken for a type of layer
            raise InvalidValue(f"config.rope_parameters.{key}", rule, parameters[key])


def explain(values: Mapping[str, Any]) -> None:
    """The error of the wrong rope parameter in a config as it is written, where there is one."""
    for holder in (values, *(inner for inner in values.values() if isinstance(inner, Mapping))):
        for field in ("rope_parameters", "rope_scaling"):
            stated = holder.get(field)
            if stated:
                require_object(stated)
                nested = {name: part for name, part in stated.items() if isinstance(part, Mapping)}
                for name, part in (nested or {"": stated}).items():
                    valid_part(name, part)


def valid_part(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """One set of rope parameters without its nulls, or the error of the first key that breaks its rule."""
    where = f"config.rope_parameters.{name}." if name else "config.rope_parameters."
    for key, (rule, is_right) in RULES.items():
        if key in part and not (part[key] is None and key in MAY_BE_NULL) and not is_right(part[key]):
            raise InvalidValue(where + key, rule, part[key])
    kept = {key: value for key, value in part.items() if value is not None}
    kind = kept.get("rope_type", kept.get("type", "default"))
    for key in NEEDED.get("longrope" if kind == "su" else kind, ()):
        if key not in kept:
            raise InvalidValue.because(where + key, f"{where}{key} is not there, and {kind} needs it")
    return kept


def require_pairs(name: str, part: Mapping[str, Any], kind: str, head_dim: Any, dims: int) -> None:
    """Refuse heads that have no pairs, and divisors that are not one for each pair."""
    where = f"config.rope_parameters.{name}." if name else "config.rope_parameters."
    if dims < 4 or dims % 2:
        rule = f"a share that rotates an even number of the {head_dim} dimensions of a head, 4 at least"
        raise InvalidValue(where + "partial_rotary_factor", rule, part.get("partial_rotary_factor", 1.0))
    for key in LISTS if kind == "longrope" else ():
        values = part[key]
        rule = f"{dims // 2} numbers above 0, one for each pair"
        if len(values) != dims // 2:
            raise InvalidValue.because(where + key, f"{where}{key} must be {rule}, and has {len(values)}")
        for value in values:
            if not _is_number(value, SMALLEST_NUMBER, LARGEST_NUMBER):
                raise InvalidValue(where + key, rule, value)


def valid_size(field: str, value: Any) -> int:
    """A size of the model that is divided or halved."""
    if not _is_whole(value, 1, 10**6):
        raise InvalidValue(f"config.{field}", "a whole number of at least 1", value)
    return int(value)


def require_lengths(text: Mapping[str, Any]) -> None:
    """Refuse lengths beside the rope parameters that are no lengths; engines read these too."""
    for key in (LENGTH, *LENGTHS):
        if text.get(key) is not None and not _is_number(text[key], 2, LARGEST_NUMBER):
            raise InvalidValue(f"config.{key}", TOKENS[0], text[key])
    scaling = text.get(QUERY_SCALE)
    if scaling is None:
        return
    held = isinstance(scaling, Mapping) and FROM_0[1](scaling.get("beta")) and TOKENS[1](scaling.get(LENGTH))
    if not held:
        raise InvalidValue(f"config.{QUERY_SCALE}", f"an object of beta and {LENGTH}", scaling)


def require_longest(value: Any) -> int:
    """The max_position_embeddings of a config."""
    if not TOKENS[1](value):
        raise DoesNotFit("config.max_position_embeddings", TOKENS[0], value)
    return int(value)


# Read what engines read of a checkpoint: its config, and small files beside it. No weights are loaded.


PLUGIN = "ropewalk"  # the rope type of Ropewalk's plugin, and the key beside it
SIDECAR = "ropewalk.json"
UNSTATED_LEN = 10**9  # tokens: a larger model_max_length of a tokenizer means that it states none


@dataclass(frozen=True, kw_only=True)
class ReadCheckpoint:
    """One checkpoint."""

    name: str
    config: Any  # transformers' own
    rope: RopeConfig
    lengths: TrainedLengths  # what it is for with its schedule, and what it was for without
    stretch: Stretch | None  # where that schedule was added after training
    trained_source: str  # who says what it was trained on; empty where its own numbers are all that is known
    corrected: int | None  # the trained length that the caller states
    is_exported: bool  # whether `ropewalk export` added it
    within: str  # the key of the language model's config in the whole; empty where it is the whole
    source: str = ""  # what `ropewalk export` is to be called with; empty where that has no weights
    sidecar: str = ""  # the extension in ropewalk.json
    export_arguments: str = ""  # that extension and its length for `ropewalk export`; empty where no line says it
    is_closed: bool = False  # whether the config says that only Ropewalk reads it
    plugin: str = ""  # the extension in the config, for Ropewalk's plugin

    @property
    def trained_len(self) -> int:
        """Tokens that it was trained on: with its schedule, unless that was added."""
        return self.stretch.trained_len if self.stretch else self.lengths.trained


def read_checkpoint(model: str | Path | Any, options: LoadOptions = UNSTATED) -> ReadCheckpoint:
    """A config.json, a folder with one, a GGUF file, a name on the hub, or a config of transformers."""
    place = Path(model) if isinstance(model, str | Path) else None
    folder = place.parent if place is not None and holds(place.is_file) else place
    of_file = place is not None and place.suffix == GGUF
    if of_file:  # what lies beside it may be of another model
        folder = None
    within_closed = folder is not None and is_closed(folder) and place in (folder, folder / FILE)
    where = folder if within_closed else place  # Phi-3's config refuses the type of a closed one, but in its folder
    config: Any = model if where is None else _fetch(where, str(folder if within_closed else model), options)
    text = config.get_text_config()
    if options.trust_remote_code:
        admit_methods(text, folder, trusted=True)
    within = language_model_key(config)
    rope = replace(_rope_config(text, folder), of_file=of_file)
    rope = replace(rope, written=_written(where, within, options), part_of=config.model_type if within else "")
    lengths, exported = lengths_of(text, corrected=options.trained_len), stretch_in(text)
    stated = exported is not None or options.trained_len is not None
    known = None if stated else known_length(text)
    if exported is not None:
        lengths = TrainedLengths(exported.target_len, exported.trained_len)
    elif rope.text.get(DUAL_CHUNK):
        lengths = TrainedLengths(max(rope.max_len, lengths.trained), lengths.trained)
    sidecar, export_arguments = _extension_in_sidecar(folder, options)
    return ReadCheckpoint(
        name=type(config).__name__ if place is None else str(model),
        config=config,
        rope=rope,
        lengths=lengths,
        stretch=exported or _added_later(rope, lengths),
        trained_source="" if known is None else known.source,
        corrected=options.trained_len,
        is_exported=exported is not None,
        within=within,
        source=_source(model, place, folder),
        sidecar=sidecar,
        export_arguments=export_arguments,
        is_closed=within_closed or any(rope.kind(name) == SENTENCE for name in rope.parts),
        plugin=_extension_in_config(text),
    )


def _added_later(rope: RopeConfig, lengths: TrainedLengths) -> Stretch | None:
    """What was written into the config of a trained model, as its makers say how: YaRN, or dual chunk attention.

    Authors who trained with YaRN state the stretched length; earlier exports state it too, and attn_factor.
    """
    if rope.text.get(DUAL_CHUNK) and lengths.original < lengths.trained:
        return Stretch(trained_len=lengths.original, target_len=lengths.trained, methods=DUAL_CHUNK)
    for name, part in rope.parts.items():
        unscaled = rope.max_len < rope.original(name) * rope.factor(name)
        if rope.kind(name) == "yarn" and (unscaled or "attn_factor" in part):
            return Stretch(trained_len=rope.original(name), target_len=lengths.trained, methods="yarn")
    return None


def _source(model: str | Path | Any, place: Path | None, folder: Path | None) -> str:
    """A name on the hub, a class, or a folder with weights."""
    if place is None:
        return type(model).__name__
    if folder is None or not holds(folder.is_dir):
        return str(model)
    is_config = place in (folder, folder / FILE)
    return str(folder) if is_config and any(folder.glob("*.safetensors")) else ""


def _fetch(place: Path, model: str, options: LoadOptions) -> Any:
    if not holds(place.is_file):
        require_plausible(model)
        return _config_at(place, place / FILE, options) if holds(place.is_dir) else fetch_config(model, options)
    if place.suffix == GGUF:
        return fetch_config(model, options)
    if place.suffix != ".json":
        raise Unreadable("model", "a config.json, a folder with one, a GGUF file, or a name on the hub", model)
    return _config_at(place, place, options)


def _config_at(place: Path, file: Path, options: LoadOptions) -> Any:
    """The config. What transformers stops at is said by its field where that is a rope parameter."""
    try:
        return fetch_config(place, options)
    except Unreadable:
        if holds(file.is_file):
            explain(read_record(file, "what transformers wrote"))
        raise


def _rope_config(text: Any, folder: Path | None) -> RopeConfig:
    require_rotation(text)
    stated = getattr(text, "rope_parameters", None)
    if not stated:
        sentence = f"{text.model_type} has no rope_parameters in its config: there are no rotations to check"
        raise DoesNotFit.because("model", sentence)
    require_object(stated)
    longest = require_longest(getattr(text, "max_position_embeddings", None))
    values = text.to_dict()
    require_lengths(values)
    parts = {name: valid_part(name, part) for name, part in parts_of(text).items()}
    is_own = type(text).__module__.startswith("transformers.")  # what a class that came with a model reads is unknown
    config = RopeConfig(
        model_type=ALIKE.get(text.model_type, text.model_type),
        parts=parts,
        head_dims={name: _head_dim(text, name) for name in parts},
        max_len=longest,
        text=values,
        tokenizer_len=_tokenizer_len(folder),
        divisors=_divisors(folder, parts),
        released_as=text.model_type if text.model_type in ALIKE else "",
        undeclared=frozenset(values) - {field.name for field in fields(text)} if is_own else frozenset(),
    )
    for name, part in parts.items():
        require_pairs(name, part, config.kind(name), config.head_dims[name], config.dims(name))
    return config


def _written(where: Path | None, within: str, options: LoadOptions) -> Mapping[str, Any]:
    """The language model's config as it is written; nothing for one in memory and for a GGUF file.

    transformers moves keys, and engines that read the file themselves find them where they stand.
    """
    if where is None or where.suffix == GGUF:
        return {}
    if holds(where.exists):
        values = read_record(where if holds(where.is_file) else where / FILE, "what transformers wrote")
    else:
        values = fetch_values(str(where), options)
    inner: Mapping[str, Any] = values.get(within, values)
    return inner


def _head_dim(text: Any, name: str) -> int:
    """The dimensions of a head that rope parameters speak of."""
    if getattr(text, "kv_lora_rank", None):
        return valid_size("qk_rope_head_dim", text.qk_rope_head_dim)
    if name and getattr(text, "is_heterogeneous", False):  # Gemma 4, whose heads differ between layer types
        text = text.per_layer_config[name]
    if getattr(text, "head_dim", None) is not None:
        return valid_size("head_dim", text.head_dim)
    heads = valid_size("num_attention_heads", text.num_attention_heads)
    return valid_size("hidden_size", text.hidden_size) // heads


def _tokenizer_len(folder: Path | None) -> int | None:
    path = None if folder is None else folder / "tokenizer_config.json"
    if path is None or not holds(path.is_file):
        return None
    length = read_record(path, "the tokenizer's own").get("model_max_length")
    return int(length) if isinstance(length, int | float) and 1 <= length < UNSTATED_LEN else None


def _divisors(folder: Path | None, parts: Mapping[str, Mapping[str, Any]]) -> tuple[float, ...] | None:
    """llama.cpp's divisors, where the config announces them: one small tensor of the weights."""
    if folder is None or not any(part.get("rope_type") == ROPE_FREQS for part in parts.values()):
        return None
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            if TENSOR in weights.keys():  # noqa: SIM118
                return tuple(weights.get_tensor(TENSOR).double().tolist())
    heads = [read_head(path) for path in sorted(folder.glob(f"*{GGUF}"))]
    base = float(next(iter(parts.values())).get("rope_theta", USUAL_BASE))
    return next((head.divisors_over(base) for head in heads if head.divisors), None)


def _extension_in_sidecar(folder: Path | None, options: LoadOptions) -> tuple[str, str]:
    """The extension of ropewalk.json, which an engine does not read, and the arguments with which export writes it.

    Both are empty where its code may not run here.
    """
    if folder is None or not holds((folder / SIDECAR).is_file):
        return "", ""
    stored = read_record(folder / SIDECAR, "what save wrote")
    values = stored.get("extension", {})
    if options.trust_remote_code:
        admit(values, folder, trusted=True)
    if not all(map(is_known, files_in(values))):
        return "", ""
    extension = Extension.from_json(values)
    line, length = notation_of(extension), stored.get("target_len")
    arguments = [shlex.quote(line), *([f"--to {length}"] if length else [])] if line else []
    return "+".join(str(spec) for specs in extension.specs.values() for spec in specs), " ".join(arguments)


def _extension_in_config(text: Any) -> str:
    """The extension that Ropewalk's plugin is to compute; nothing where the config has none.

    Its line stands beside the rope parameters too: an option that replaces these leaves a trace.
    """
    in_force = any(part.get("rope_type") == PLUGIN for part in parts_of(text).values())
    return str(getattr(text, PLUGIN, None) or ("an extension" if in_force else ""))
