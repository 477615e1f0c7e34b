"""Saving and loading: in the words of plain transformers where it has them, beside the weights where not; verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.folders import appearing, require_plausible
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import Handle, handle_of, host_of
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.checkpoint.config_schedule import require_sayable, standard_config
from ropewalk.hf.checkpoint.fetch import TRUST, fetch_model, runs_own_code
from ropewalk.hf.probe.identity import CLOSE, HALF
from ropewalk.hf.probe.rotary import quiet
from ropewalk.hf.runtime.layer import PREFIX

FAILURES = (OSError, SafetensorError)  # how a disk says that it is full
TOKENS = 256  # of the text on which what was saved must give the same logits
FAR = 20_000  # where it must as well: as far as angles in float32 leave logits the same


def save(
    model: nn.Module, directory: str | Path, *, target_len: int | None = None, tokenizer: Any | None = None
) -> str:
    """Write an extended model so that it comes back the same, its tokenizer beside it, and say how it is to be loaded.

    A static schedule becomes a standard config; whatever else there is goes into `ropewalk.json` beside the weights.
    What was written is loaded and compared before this returns; nothing half-written is ever left.
    """
    host, handle = extended_host(model)
    with appearing(Path(directory), FAILURES) as place:
        save_weights(host, place)
        try:
            require_sayable(handle.extension, handle.layers)
            standard_config(host.config, handle.extension, handle.layers, target_len).save_pretrained(place)
            how = "transformers.AutoModelForCausalLM.from_pretrained"
        except DoesNotFit as reason:
            if reason.field == "target_len":  # a length that only the caller knows
                raise
            handle.keep(place, target_len=target_len)
            how = f"ropewalk.load, since no plain config says it: {reason}"
        reached = min(handle.facts.trained_len * handle.extension.theta.stretch, FAR)
        require_same(host, place, target_len or int(reached))
        save_tokenizer(tokenizer, place)
    return how


def load(directory: str | Path, **given: Any) -> PreTrainedModel:
    """A model as it was saved, extended again where its config cannot say how; `given` goes to from_pretrained.

    A model whose weights are not all there is refused.
    """
    require_plausible(str(directory))
    place = Path(directory)
    stored = sidecar.read(place) if (place / sidecar.FILE).exists() else None
    read = fetch_model(directory, output_loading_info=True, **given)
    model: PreTrainedModel = read[0]
    missing = sorted(read[1]["missing_keys"])  # which would be left at random
    if missing:
        raise Unreadable(str(directory), "whole", f"no weights for {', '.join(missing[:3])}", remedy="fetch it again")
    if stored:
        extension, how = stored
        sidecar.fill(place, model, extend(model, extension, **how).layers)
    return model


def extended_host(model: nn.Module) -> tuple[PreTrainedModel, Handle]:
    """The model inside and the handle it is held by; a bare model is refused."""
    host = host_of(model)
    if host is not model:
        remedy = "merge the adapter first (merge_and_unload), then extend and save"
        raise InvalidValue("model", "transformers' own, not wrapped", type(model).__name__, remedy=remedy)
    handle = handle_of(host)
    if handle is None:
        remedy = "extend it first, or use save_pretrained"
        raise InvalidValue("model", "under an extension", type(host).__name__, remedy=remedy)
    if type(host.config) not in AutoModelForCausalLM._model_mapping and not hasattr(host.config, "auto_map"):
        remedy = "load the model by its own class, and extend it anew"
        raise DoesNotFit("model", "one that AutoModelForCausalLM loads again", type(host).__name__, remedy=remedy)
    return host, handle


def save_weights(host: PreTrainedModel, place: Path, state: dict[str, Tensor] | None = None) -> None:
    """As transformers does, which on its way notes types and architectures in the model's own config."""
    own = dict(host.config.__dict__)
    try:
        state = {name: value for name, value in (state or host.state_dict()).items() if PREFIX not in name}
        type(host).save_pretrained(host, place, state_dict=state)
    finally:
        host.config.__dict__.clear()
        host.config.__dict__.update(own)


def save_tokenizer(tokenizer: Any | None, place: Path) -> None:
    """Beside the weights, where one is given. Its writer has no error of its own, not even for a full disk."""
    try:
        if tokenizer is not None:
            tokenizer.save_pretrained(place)
    except Exception as reason:
        raise InvalidValue("tokenizer", "one that can be written", str(reason), remedy="make room") from reason


def require_same(host: PreTrainedModel, place: Path, length: int) -> None:
    """Load what was written and compare logits, of the first tokens of a text and far on; refused where they differ."""
    trusting: dict[str, Any] = {TRUST: True} if runs_own_code(host) else {}
    again = load(place, dtype=host.dtype, **trusting).to(host.device)  # type: ignore[arg-type]
    count = min(length, TOKENS)
    ids = torch.arange(count, device=host.device)[None] * 7 % host.config.get_text_config().vocab_size
    for first in sorted({0, min(length, FAR) - count}):
        places = torch.arange(first, first + count, device=host.device)[None]
        given = {"input_ids": ids, "position_ids": places, "use_cache": False}
        with quiet(host), quiet(again), torch.no_grad():
            expected, got = host(**given).logits.double(), again(**given).logits.double()
        error = float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())
        if not error <= CLOSE.get(host.dtype, HALF):
            said = f"relative error {error:.1e} from token {first} on"
            raise DoesNotFit("what was saved", "the same when loaded", said)
