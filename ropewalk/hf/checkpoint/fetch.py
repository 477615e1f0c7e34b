"""What transformers reads of a model: its config, its tokenizer, its weights.

Code that comes with a model runs where somebody asked for that, and nobody is asked on a terminal. Files can be broken
in more ways than transformers has errors for; all of them are one refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ropewalk.errors import RopewalkError, Unreadable, is_out_of_memory, not_installed
from ropewalk.files import why
from ropewalk.trust import trusted

TRUST = "trust_remote_code"
OWN_CODE = "transformers_modules"  # where transformers keeps the code that came with a model


def runs_own_code(model: nn.Module) -> bool:
    """Whether a model is of a class that came with it; whoever loaded it trusts its code."""
    return type(model).__module__.partition(".")[0] == OWN_CODE


def fetch_config(model: str | Path, **given: Any) -> Any:
    """The config."""
    rule = "one whose config transformers reads"
    return _fetched(AutoConfig.from_pretrained, model, given, rule, "mend its config.json")


def fetch_tokenizer(model: str | Path, **given: Any) -> Any:
    """The tokenizer."""
    rule, remedy = "one with a tokenizer beside its weights", "put its files there; save_pretrained writes them"
    return _fetched(AutoTokenizer.from_pretrained, model, given, rule, remedy)


def fetch_model(model: str | Path, **given: Any) -> Any:
    """The causal language model, or what `given` asks for beside it."""
    rule, remedy = "a causal model that transformers loads", "fetch again what is missing or not whole"
    return _fetched(AutoModelForCausalLM.from_pretrained, model, given, rule, remedy)


def _fetched(how: Callable[..., Any], model: str | Path, given: dict[str, Any], rule: str, remedy: str) -> Any:
    own = given.get(TRUST)
    try:
        return how(model, **{**given, TRUST: trusted() if own is None else own})
    except (RopewalkError, MemoryError):
        raise
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    except Exception as reason:
        if is_out_of_memory(reason):
            raise
        if TRUST in str(reason):
            remedy = f"read the code that it brings, then pass {TRUST}=True, or --trust-remote-code"
        said = f"{type(reason).__name__}: {why(reason)}; {remedy}"
        raise Unreadable("model", rule, str(model), remedy=said) from reason
