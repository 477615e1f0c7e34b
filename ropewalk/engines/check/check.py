"""What a serving engine will compute from a checkpoint, and how that differs from what its authors meant.

    same       the engine computes what the config says, up to the length
    differs    another table, temperature or length, with the numbers, and the flags that mend it where there are any
    refused    the engine does not start, or not with this length
    unknown    nobody has read what the engine computes here

Source: each engine's formulas are in its file in engines/, with the versions that were read. Where the engine is
installed in the running environment in the version that is asked for, its own code is called.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.engines.check.by_plugin import ANEW, find_plan, is_missing
from ropewalk.engines.check.mend import Changes, Difference, differences, is_right, mend, texts_to_compare
from ropewalk.engines.check.reading import PLUGIN, ReadCheckpoint, read_checkpoint
from ropewalk.engines.check.report import EngineCheck, Finding, Kind, LayerCheck
from ropewalk.engines.check.versions import (
    ChosenEngine,
    choose_engine,
    installed_version,
    is_installed,
    own_rotation,
    vllm_length,
)
from ropewalk.engines.layer_plan import ModelPlan
from ropewalk.engines.llama_cpp.rules import READS_DIVISORS
from ropewalk.engines.mlx import BASE_ALONE
from ropewalk.engines.rules.range_keys import unread_keys, unread_names
from ropewalk.engines.rules.rotation import Answer, Asked, EngineRotation, EngineRules, LengthRule, NoAnswer, RopeConfig
from ropewalk.engines.rules.standard import has_two_tables, standard_rotation, why_not_known
from ropewalk.engines.targets import ENGINES
from ropewalk.extension.presets.arguments import require_whole
from ropewalk.hf.checkpoint.closed_config import SENTENCE
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.trained_lengths import DUAL_CHUNK

TRANSFORMERS = "transformers"
EXPORTED_AS = {"ollama": "llama.cpp", "ollama-mlx": "mlx"}
ONE_TABLE = ("mlx", "ollama-mlx", "exllamav3")  # they have one for texts of every length


@dataclass(frozen=True)
class CheckRequest:
    """One checkpoint, one engine, one length."""

    checkpoint: ReadCheckpoint
    engine: ChosenEngine
    served: int
    installed: str  # the version whose own code is called; empty: our formulas

    @property
    def rules(self) -> EngineRules:
        return self.engine.rules

    @property
    def config(self) -> RopeConfig:
        return self.checkpoint.rope

    @property
    def length(self) -> LengthRule:
        """The lengths of the engine, by its own code where that can be called."""
        by_formula = self.rules.length(self.config, self.engine.version)
        if self.installed and self.rules.name == "vllm":
            return vllm_length(self.checkpoint.config, self.config, by_formula)
        return by_formula

    def rotation(self, name: str, text: int) -> Answer:
        """What the engine computes, by its own code where that can be called."""
        asked = Asked(self.engine.version, self.served, text)
        by_formula = self.rules.rotation(self.config, name, asked)
        if not self.installed or isinstance(by_formula, NoAnswer):
            return by_formula
        return own_rotation(self.rules.name, by_formula, self.config, name, asked, self.checkpoint.config) or by_formula


def check(
    model: str | Path | Any,
    *,
    engine: str = "vllm",
    target_len: int | None = None,
    options: LoadOptions = UNSTATED,
) -> EngineCheck:
    """Report what an engine will compute from a checkpoint, and whether that is what its maker means.

        checked = rw.check("model", engine="vllm@0.32", target_len=131072)
        print(checked.verdict, checked, sep="\\n")

    No weights are loaded.

    Args:
        model: a config.json, a folder with one, a GGUF file, or a name on the hub.
        engine: vllm, sglang, llama.cpp, mlx, ollama, ollama-mlx, lmdeploy, exllamav3 or transformers, with a version
            after @ (vllm@0.32); by default the newest that was read.
        target_len: the length to serve, in tokens; by default the length that the checkpoint is made for, with its own
            schedule.
        options: a `LoadOptions`, of which only `revision`, `trust_remote_code` and `trained_len` are used.

    Returns:
        An `EngineCheck`: its verdict, layers, and findings with remedies; `str` is a page of text, `to_json()` the same
        for programs.
    """
    require_whole("target_len", target_len)
    which, checkpoint = choose_engine(engine), read_checkpoint(model, options)
    present = installed_version(which.rules.name)
    called = present if is_installed(which.version, present) else ""
    question = CheckRequest(checkpoint, which, target_len or checkpoint.lengths.trained, called)
    layers, findings = (
        ([], [_closed_config(question)]) if checkpoint.is_closed else _judge_layers(question, target_len is None)
    )
    refused = any(finding.kind == "refused" for finding in findings)
    return EngineCheck(
        model=checkpoint.name,
        engine=which.rules.name,
        version=called or which.written,
        source=f"its own code, {called}, installed here; {which.source}" if called else which.source,
        target_len=question.served,
        trained_len=checkpoint.trained_len,
        trained_source=checkpoint.trained_source,
        made_for_len=checkpoint.lengths.trained,
        stretched_by=checkpoint.stretch.methods if checkpoint.stretch else "",
        length=question.length,
        layers=tuple(layers),
        ignored=tuple(_ignored_keys(question, layers)),
        findings=tuple(findings),
        command="" if refused else which.rules.flags({}, question.served),
    )


def _closed_config(question: CheckRequest) -> Finding:
    """What every engine stops at; vLLM computes the same from another folder."""
    arguments, remedy = question.checkpoint.export_arguments, "ropewalk.load runs it"
    if arguments and question.rules.name == "vllm":
        remedy += f"; for vLLM with Ropewalk's plugin: ropewalk export ORIGINAL {arguments} --target vllm -o FOLDER"
    return Finding(kind="refused", sentence=SENTENCE, remedy=remedy)


def _judge_layers(question: CheckRequest, by_default: bool) -> tuple[list[LayerCheck], list[Finding]]:
    """The layers, and all that is to be known of them. `by_default`: no length was asked for."""
    layers, findings = _layers(question)
    findings += [*_length_findings(question), *_file_findings(question), *_range_findings(question, layers)]
    kind: Kind = "differs" if by_default else "warning"
    ends = [one for layer in layers if layer.engine for one in _default_findings(question, layer.layers, kind)]
    return layers, [*_add_remedies(question, findings), *ends, *_warnings(question)]


def _layers(question: CheckRequest) -> tuple[list[LayerCheck], list[Finding]]:
    """Each type of layer, and what is wrong with it."""
    layers, findings = [], list[Finding]()
    for name in question.config.parts:
        answer = _layer(question, name)
        if isinstance(answer, NoAnswer):
            findings.append(Finding(kind=answer.kind, sentence=answer.sentence, remedy=answer.remedy))
        elif isinstance(answer, ModelPlan):
            layers.append(LayerCheck(layers=name, rope_type=PLUGIN, engine=None, meant=None, transformers=None))
            findings.append(_plan_findings(question, answer))
        else:
            layers.append(answer)
            sentences = (_about_layer(name, str(difference)) for difference in answer.from_meant)
            findings += [Finding(kind="differs", sentence=sentence) for sentence in sentences]
            findings += _layer_findings(question, name, answer)
    return layers, list(dict.fromkeys(findings))


def _layer(question: CheckRequest, name: str) -> LayerCheck | ModelPlan | NoAnswer:
    """One type of layer, or the plan of it for the plugin, or why the engine computes neither."""
    config, served = question.config, question.served
    if config.kind(name) == PLUGIN:
        return find_plan(config, name, question.engine, served)
    engine, unknown = question.rotation(name, served), why_not_known(config, name)
    if isinstance(engine, NoAnswer):
        return engine
    if unknown:
        return unknown
    transformers = _transformers(question, name, served)
    apart = []
    for text in texts_to_compare(config, name, served):
        computed = question.rotation(name, text)
        if isinstance(computed, NoAnswer):
            return computed
        apart.append(differences(computed, standard_rotation(config, name, text), text))
    return LayerCheck(
        layers=name,
        rope_type=config.kind(name),
        engine=engine,
        meant=standard_rotation(config, name, served),
        transformers=transformers,
        from_meant=_worst(apart),
        from_transformers=() if transformers is None else differences(engine, transformers, served),
    )


def _worst(apart: list[tuple[Difference, ...]]) -> tuple[Difference, ...]:
    """One difference of each kind: that of the longest text, else that of the short one."""
    last = {difference.what: difference for several in apart for difference in several}
    return tuple(last.values())


def _transformers(question: CheckRequest, name: str, text: int) -> EngineRotation | None:
    """What transformers computes; nothing where it is the engine, or stops."""
    if question.rules.name == TRANSFORMERS:
        return None
    rules = ENGINES[TRANSFORMERS]
    answer = rules.rotation(question.config, name, Asked(rules.ranges[-1].last, question.served, text))
    return None if isinstance(answer, NoAnswer) else answer


def _plan_findings(question: CheckRequest, plan: ModelPlan) -> Finding:
    """What vLLM needs to compute a plan."""
    remedy = "install Ropewalk there: in a checkout, pip install ."
    if is_missing(installed_version("vllm")):
        sentence = f"the config needs Ropewalk's plugin in vLLM, for {plan.line}; vLLM is installed here without it"
        return Finding(kind="refused", sentence=sentence, remedy=remedy)
    sentence = f"the config is for {plan.line}, and needs Ropewalk in vLLM's environment"
    return Finding(kind="warning", sentence=sentence, remedy=remedy)


def _layer_findings(question: CheckRequest, name: str, layer: LayerCheck) -> Iterator[Finding]:
    """A table that ends early, and texts that meet several tables."""
    served, engine = question.served, layer.engine
    if engine is None:
        return
    if engine.rows < served:
        sentence = f"the table ends at {engine.rows:,} positions, and rows beyond it are wrong or not numbers"
        yield Finding(kind="differs", sentence=_about_layer(name, sentence))
    asked = Asked(question.engine.version, served, served)
    for caution in question.rules.cautions(question.config, name, asked):
        yield Finding(kind="differs" if caution.harmful else "warning", sentence=_about_layer(name, caution.sentence))


def _default_findings(question: CheckRequest, name: str, kind: Kind) -> Iterator[Finding]:
    """A table that ends before the length that is served by default."""
    default, version = question.length.default, question.engine.version
    answer = question.rules.rotation(question.config, name, Asked(version, default, default))
    rows = math.inf if isinstance(answer, NoAnswer) else answer.rows
    if rows < default:
        sentence = f"without flags {default:,} tokens are served, and the table ends at {rows:,} positions"
        yield Finding(
            kind=kind, sentence=_about_layer(name, sentence), remedy=question.rules.flags({}, int(min(rows, default)))
        )


def _about_layer(name: str, sentence: str) -> str:
    return f"{name}: {sentence}" if name else sentence


def _length_findings(question: CheckRequest) -> Iterator[Finding]:
    allowed = question.length.allowed
    if allowed < question.served:
        sentence = f"{question.rules.name} allows {allowed:,.0f} tokens with this config, not {question.served:,}"
        yield Finding(kind="refused", sentence=sentence)


def _file_findings(question: CheckRequest) -> Iterator[Finding]:
    """What stands beside the config and no engine reads."""
    checkpoint = question.checkpoint
    if checkpoint.plugin and not any(checkpoint.rope.kind(name) == PLUGIN for name in checkpoint.rope.parts):
        sentence = f"the config was written for {checkpoint.plugin}, and its rope parameters do not have it"
        yield Finding(kind="differs", sentence=sentence, remedy="leave out the option that replaces rope_parameters")
    if checkpoint.sidecar:
        sentence = f"{question.rules.name} does not read ropewalk.json, which adds {checkpoint.sidecar}"
        yield Finding(kind="differs", sentence=sentence, remedy="rw.load runs it")


def _range_findings(question: CheckRequest, layers: list[LayerCheck]) -> Iterator[Finding]:
    """Keys beside the rope parameters that change texts of this length, and that the engine does not read."""
    rules = question.rules
    for key in unread_keys(rules, question.config) if layers else ():
        if question.served > key.within:
            beyond = f" beyond {key.within:,} tokens" if key.within else ""
            sentence = f"{rules.name} does not read {key.name}, by which {key.what}{beyond}"
            flags = rules.flags({}, key.within)
            remedy = f"serve {key.within:,} tokens at most" + (f": {flags}" if str(key.within) in flags else "")
            yield Finding(kind="differs", sentence=sentence, remedy=remedy if key.within else "")


def _ignored_keys(question: CheckRequest, layers: list[LayerCheck]) -> Iterator[str]:
    """Keys of the config that the engine does not read, where its code was read."""
    yield from unread_names(question.rules, question.config) if layers else ()
    for name, part in ((layer.layers, question.config.parts[layer.layers]) for layer in layers):
        where = f"rope_parameters.{name}." if name else "rope_parameters."
        read = question.rules.reads(question.config, name, question.engine.version)
        kind = question.config.kind(name)
        yield from (
            where + key for key, value in part.items() if key not in read and value is not None and kind != PLUGIN
        )


def _add_remedies(question: CheckRequest, findings: list[Finding]) -> list[Finding]:
    """The findings with a remedy where keys of the config mend them all."""
    bare = [finding for finding in findings if finding.kind in ("refused", "differs") and not finding.remedy]
    if not bare or any(finding.remedy for finding in findings if finding.kind != "warning"):
        return findings
    remedy = _remedy(question)
    last = bare[-1]
    return [Finding(kind=last.kind, sentence=last.sentence, remedy=remedy) if one is last else one for one in findings]


def _remedy(question: CheckRequest) -> str:
    """Keys of the config for a length that the checkpoint is for; else another way."""
    beyond = question.served > question.checkpoint.lengths.trained
    changes = None if beyond else mend(question.config, question.rules, question.engine.version, question.served)
    return _flags(question, changes) if changes else _other_way(question)


def _flags(question: CheckRequest, changes: Changes) -> str:
    """The flags that change the config; a file for llama.cpp has to be written anew."""
    within = question.checkpoint.within
    flags = question.rules.flags({within: changes} if within else changes, question.served)
    return flags or _other_way(question)


def _other_way(question: CheckRequest) -> str:
    """What to do where no key mends it."""
    checkpoint, rules, config = question.checkpoint, question.rules, question.config
    if any(config.kind(name) == PLUGIN for name in config.parts):
        return f"{ANEW}, with --to {question.served}"
    if question.served > checkpoint.lengths.trained:
        return _export_command(question)
    write = f"ropewalk export {_source(question)} {{}} {_written_for(question)}"
    if any(config.kind(name) == "dynamic" for name in config.parts):
        return write.format(f"ntk --to {question.served}")
    two = any(has_two_tables(config, name) for name in config.parts)
    if two and rules.name not in ONE_TABLE:
        original = min(config.original(name) for name in config.parts)
        return f"serve short texts by a second server: {rules.flags({}, original)}"
    divided = rules.name == "llama.cpp" and config.model_type in READS_DIVISORS and "" in config.parts
    scheduled = any(config.kind(name) != "default" for name in config.parts)
    base_alone = rules.name == "ollama-mlx" or config.model_type in BASE_ALONE
    elsewhere = rules.name in ("mlx", "ollama-mlx") and not two and not (scheduled and base_alone)
    if divided or elsewhere or (rules.name == "ollama" and config.written):
        return write.format("rope")
    return "no key of the config mends it; rw.load computes what was meant"


def _source(question: CheckRequest) -> str:
    source = question.checkpoint.source
    return shlex.quote(source) if source else "MODEL"


def _written_for(question: CheckRequest) -> str:
    """The options of an export of what this engine reads."""
    rules = question.rules
    target = rules.name if rules.export else EXPORTED_AS.get(rules.name, TRANSFORMERS)
    out = "OUT.gguf" if question.config.of_file and target == "llama.cpp" else "FOLDER"
    return f"--target {target} -o {out}"


def _export_command(question: CheckRequest) -> str:
    """An export for a longer text. What was stretched already is not stretched once more, but anew and further."""
    checkpoint, rules = question.checkpoint, question.rules
    yarn = _yarn_config(question)
    if not is_right(yarn, yarn, rules, question.engine.version, question.served):
        return "no export for this engine; rw.load runs it"
    length = "" if checkpoint.corrected is None else f" --trained-len {checkpoint.corrected}"
    write = f"ropewalk export {{}} {{}} --to {question.served}{length} {_written_for(question)}"
    if checkpoint.is_exported:
        return f"export the original model anew: {write.format('ORIGINAL', 'yarn')}"
    replaced = checkpoint.stretch and checkpoint.stretch.methods != DUAL_CHUNK
    return write.format(_source(question), "yarn+instead" if replaced else "yarn")


def _yarn_config(question: CheckRequest) -> RopeConfig:
    """The config that an export of YaRN for the served length writes."""
    config, served = question.config, question.served
    trained = question.checkpoint.trained_len
    schedule = {"rope_type": "yarn", "factor": served / trained, "original_max_position_embeddings": trained}
    kept = ("rope_theta", "partial_rotary_factor")
    parts = {
        name: schedule | {key: part[key] for key in kept if key in part}
        for name, part in config.parts.items()
        if name != "sliding_attention"
    }
    return replace(config, max_len=served, parts={**config.parts, **parts}, written={})


def _warnings(question: CheckRequest) -> Iterator[Finding]:
    """What the engine computes as it was meant, and still is not what a user may expect."""
    checkpoint, made_for = question.checkpoint, question.checkpoint.lengths.trained
    if question.served > made_for:
        sentence = f"the checkpoint is for {made_for:,} tokens; nothing in it is made for {question.served:,}"
        yield Finding(kind="warning", sentence=sentence, remedy=_other_way(question))
    if checkpoint.stretch and not checkpoint.plugin and checkpoint.stretch.methods != DUAL_CHUNK:
        original = f"up to {checkpoint.stretch.trained_len:,} tokens"
        sentence = (
            f"the schedule is in force for short texts too, on which ({original}) the model was trained without it"
        )
        remedy = "serve short prompts from the checkpoint without it, or use a dynamic schedule with rw.load"
        yield Finding(kind="warning", sentence=sentence, remedy=remedy)
