"""What engines make of a line, by the rules of export, on a small Llama with the rotation of the page's model."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import NamedTuple

from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk.engines.export import EngineConfig, plan_export
from ropewalk.engines.rules.statement import StatedModel
from ropewalk.engines.vllm.rules import flags
from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.extension.parsing import Line
from ropewalk.hf.attach.extend import attach_layers
from ropewalk.hf.attach.handle import ATTENTION, Handle
from ropewalk.hf.checkpoint.closed_config import without_warning
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.methods.facts import Facts

ENGINES = ("vllm", "sglang", "llama.cpp")
REFUSED = "refused"  # beside the kinds of export
STATED = ("rope_parameters", "max_position_embeddings")  # of a config: what an extension changes
LAYERS = 4  # enough for presets whose layers differ


class SmallLlama(NamedTuple):
    """A small Llama, and what the probe says of its layers."""

    model: LlamaForCausalLM
    layers: list[ProbedLayer]
    facts: list[Facts]


class InEngines(NamedTuple):
    """Of each engine a kind of export, or that it cannot run the line; and vLLM's flags where they are enough."""

    kinds: dict[str, str]
    flags: str


def in_engines(line: Line, facts: Facts, length: int) -> InEngines | None:
    """What the engines make of a line; nothing for a model that no Llama stands for: export asks its checkpoint."""
    if facts.inv_freq is not None or facts.rotary_dim is not None:
        return None
    kinds, shown = dict.fromkeys(ENGINES, REFUSED), ""
    llama = _llama(facts.trained_len, facts.head_dim, facts.base)
    try:
        extension = line.build_for(llama.facts[0], length)
        if extension.decoding or extension.surgery:  # which are no part of a model that runs
            return InEngines(kinds, shown)
        layers = tuple(attach_layers(llama.layers, llama.facts, extension))
    except RopewalkError:  # it fits the model, and not one of four layers
        return None
    # As if the Llama were under the line: rules of export read it, and nothing is put on the model.
    handle = Handle(llama.model, extension, layers, False, ExitStack(), ATTENTION, target_len=length)
    for engine in ENGINES:
        with without_warning():
            plan = plan_export(handle, engine, length)
        if isinstance(plan, EngineConfig):
            kinds[engine] = plan.kind
            if engine == "vllm" and plan.kind == "native" and plan.stated.window is None:
                shown = _flags(llama, plan.stated, length)
        elif not isinstance(plan, DoesNotFit):
            kinds[engine] = "plugin"
    return InEngines(kinds, shown)


@cache
def _llama(trained_len: int, head_dim: int, base: float) -> SmallLlama:
    config = LlamaConfig(
        hidden_size=8,
        intermediate_size=8,
        vocab_size=8,
        num_attention_heads=1,
        num_hidden_layers=LAYERS,
        head_dim=head_dim,
        max_position_embeddings=trained_len,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    model = LlamaForCausalLM(config)
    layers = probe(model)
    return SmallLlama(model, layers, [facts_of(model, layer, len(layers)) for layer in layers])


def _flags(llama: SmallLlama, stated: StatedModel, length: int) -> str:
    """What makes vLLM compute it from the model's own folder."""
    changes = {name: getattr(stated.text, name) for name in STATED}
    before = llama.model.config
    return flags({name: value for name, value in changes.items() if value != getattr(before, name)}, length)
