"""Load a model's config, tokenizer or weights by transformers.

Code that comes with a model runs only if the caller allows it; nobody is asked on a terminal. Broken files raise many
kinds of errors in transformers; here they are one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ropewalk.engines.vllm.reading import ROPE_TYPE
from ropewalk.errors import RopewalkError, Unreadable, is_out_of_memory, not_installed
from ropewalk.files import why
from ropewalk.trust import trusted

TRUST = "trust_remote_code"
OWN_CODE = "transformers_modules"  # the package in which transformers stores the code that came with a model


def runs_own_code(model: nn.Module) -> bool:
    """Whether the class of a model came with it; then the caller has trusted its code."""
    return type(model).__module__.partition(".")[0] == OWN_CODE


def fetch_config(model: str | Path, **kwargs: Any) -> Any:
    """The config."""
    rule = "one whose config transformers reads"
    return _fetched(AutoConfig.from_pretrained, model, kwargs, rule, "correct its config.json")


def fetch_tokenizer(model: str | Path, **kwargs: Any) -> Any:
    """The tokenizer."""
    rule, remedy = "one with a tokenizer beside its weights", "put its files there; save_pretrained writes them"
    return _fetched(AutoTokenizer.from_pretrained, model, kwargs, rule, remedy)


def fetch_model(model: str | Path, **kwargs: Any) -> Any:
    """The causal language model, with what `kwargs` ask for besides."""
    rule, remedy = "a causal model that transformers loads", "fetch again what is missing or incomplete"
    return _fetched(AutoModelForCausalLM.from_pretrained, model, kwargs, rule, remedy)


def _fetched(how: Callable[..., Any], model: str | Path, kwargs: dict[str, Any], rule: str, remedy: str) -> Any:
    trust = kwargs.get(TRUST)
    try:
        return how(model, **{**kwargs, TRUST: trusted() if trust is None else trust})
    except (RopewalkError, MemoryError):
        raise
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    except Exception as reason:
        if is_out_of_memory(reason):
            raise
        if TRUST in str(reason):
            remedy = f"read the code that comes with it, then pass {TRUST}=True, or --trust-remote-code"
        if isinstance(reason, KeyError) and reason.args == (ROPE_TYPE,):
            sentence = f"{model} was written for vLLM with Ropewalk's plugin, and transformers cannot compute it"
            remedy = "load the model that it was made of, and extend that"
            raise Unreadable.because("model", sentence, remedy=remedy) from reason
        detail = f"{type(reason).__name__}: {why(reason)}; {remedy}"
        raise Unreadable("model", rule, str(model), remedy=detail) from reason
