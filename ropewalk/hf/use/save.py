"""Save and load: as a standard config where that is possible, else with a sidecar; verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.files import holds, read_record
from ropewalk.folders import make_folder
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import Handle, handle_of, host_of
from ropewalk.hf.attach.saving import config_with_extension
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.checkpoint.closed_config import ADAPTER, KEPT, KIND, SIDECAR, close, is_adapter
from ropewalk.hf.checkpoint.fetch import (
    TRUST,
    fetch_adapter,
    fetch_folder,
    fetch_model,
    loadable,
    loader_of,
    named_as,
    runs_own_code,
)
from ropewalk.hf.checkpoint.own_files import require_own_files, sources_of
from ropewalk.hf.checkpoint.sidecar import first_difference
from ropewalk.hf.load_options import AUTO, UNSTATED, LoadOptions, require_plausible
from ropewalk.hf.probe.host import device_of, format_of, quiet, require_savable
from ropewalk.hf.probe.probe import affordable_tokens, allowed_error
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.models import path_of

# Adapters of peft on an extended model: saved with the sidecar beside them, and loaded onto their base model.
#
# Only Ropewalk reads such a folder: the type of the adapter is replaced by a sentence, at which peft stops.


BASE = "base_model_name_or_path"
ONLY = "default"  # peft's name of the one adapter of a model
MERGE = "merge the adapter first (merge_and_unload)"


def is_adapted(model: nn.Module) -> bool:
    """Whether peft has wrapped the model."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def require_merged(host: PreTrainedModel, task: str) -> None:
    """Refuse adapters among the modules of a model."""
    if any(".base_layer." in name for name, _ in host.named_parameters()):
        remedy = f"{MERGE}; rw.save writes an adapter of its own, where it gets peft's model"
        sentence = f"{task} needs plain weights, and the model has adapters inside"
        raise DoesNotFit.because("model", sentence, remedy=remedy)


def write_adapter(model: Any, place: Path) -> None:
    """Write the adapter. Its config stores the extension beside it."""
    if list(model.peft_config) != [ONLY]:
        known = ", ".join(model.peft_config)
        sentence = f"rw.save writes one adapter, named {ONLY}, and the model has {known}"
        raise InvalidValue.because("model", sentence, remedy="delete the others (delete_adapter)")
    if not getattr(model.peft_config[ONLY], BASE, None):
        sentence = "the adapter does not say of which model it is"
        remedy = f"load the model by from_pretrained, or set peft_config[{ONLY!r}].{BASE}"
        raise InvalidValue.because("model", sentence, remedy=remedy)
    model.save_pretrained(place)


def load_adapter(place: Path, options: LoadOptions = UNSTATED, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    """The adapter of a folder on its base model, and what transformers says of the loading.

    `options` and `kwargs` are for the base model.
    """
    config = read_record(place / ADAPTER, "what peft wrote")
    config[KIND] = config.pop(KEPT + KIND, config.get(KIND))
    base, info = fetch_model(_base(place, config), options, **kwargs)
    return fetch_adapter(base, place, config), info


def base_of(place: Path) -> str:
    """The model that the adapter of a folder names."""
    return _base(place, read_record(place / ADAPTER, "what peft wrote"))


def _base(place: Path, config: dict[str, Any]) -> str:
    base = config.get(BASE)
    if not base or not isinstance(base, str):
        sentence = f"{place / ADAPTER} does not say of which model the adapter is"
        remedy = f"write the model's folder, or its name on the hub, there as {BASE}"
        raise Unreadable.because("adapter", sentence, remedy=remedy)
    return base


FAILURES = (OSError, SafetensorError)  # the errors of a full disk
VERIFIED_TOKENS = 256  # of the text on which the saved model must give the same logits
SLOWER_IN_HALF = 4  # times, on a CPU: many compute bfloat16 and float16 without instructions for them
LAST_TESTED = 20_000  # the last position of that test: farther, angles in float32 change the logits


def save(
    model: nn.Module, directory: str | Path, *, target_len: int | None = None, tokenizer: Any | None = None
) -> str:
    """Write an extended model, with its tokenizer if passed, and return how to load it.

        rw.extend(model, "yarn:factor=4")
        print(rw.save(model, "model-32k", tokenizer=tokenizer))

    A static schedule becomes a standard config, which plain transformers loads. Any other extension goes into
    `ropewalk.json`, for `rw.load`; everything else stops at the config of that folder. The saved model is loaded and
    compared before this returns; a failure leaves no files.

    Args:
        model: under an extension, or with an adapter of peft on it.
        directory: new or empty.
        target_len: in tokens; it is written into the config.
        tokenizer: written beside the weights.
    """
    if is_adapted(model):
        return _save_adapter(model, Path(directory), target_len, tokenizer)
    host, handle = extended_host(model)
    require_savable(host)
    require_own_files(*sources_of(host, tokenizer))
    with make_folder(Path(directory), FAILURES) as place:
        save_weights(host, place)
        config = config_with_extension(handle, target_len or handle.target_len)
        if not isinstance(config, DoesNotFit):
            config.save_pretrained(place)
            how = f"transformers.{loader_of(host.config, type(host).__name__).__name__}.from_pretrained"
        elif config.field == "target_len":  # only the caller can state a length
            raise config
        else:
            handle.keep(place, target_len=target_len)
            close(place)
            how = f"ropewalk.load: {config}"
        reached = min(handle.facts.trained_len * handle.extension.frequencies_or_rope.stretch, LAST_TESTED)
        require_same(host, place, target_len or int(reached))
        save_tokenizer(tokenizer, place)
    return how


def _save_adapter(model: nn.Module, directory: Path, target_len: int | None, tokenizer: Any | None) -> str:
    """Write the adapter of a wrapped model with the extension beside it."""
    host, handle = host_of(model), required_handle(host_of(model))
    require_own_files(*sources_of(host, tokenizer))
    with make_folder(directory, FAILURES) as place:
        write_adapter(model, place)
        handle.keep(place, target_len=target_len)
        close(place)
        require_same(host, place, target_len or handle.facts.trained_len)
        save_tokenizer(tokenizer, place)
    return "ropewalk.load: the folder has an adapter, and its extension"


def load(directory: str | Path, *, options: LoadOptions = UNSTATED, **kwargs: Any) -> PreTrainedModel:
    """Load a model, under its extension where `ropewalk.json` has one.

        model = rw.load("model-32k", dtype="auto")

    Missing weights are an error. A folder with an adapter gives peft's model, on the base model that the adapter names.
    A method that lies in the folder as a file runs only with `trust_remote_code`, and if the file has the hash that was
    saved.

    Args:
        directory: a folder, a GGUF file, default (the model that Ropewalk carries), or a name on the hub.
        options: how it is loaded.
        kwargs: of transformers' from_pretrained; they come before `options`.
    """
    name = path_of(str(directory))
    if not is_adapter(Path(name)):
        require_plausible(name)
    fetched = fetch_folder(name, options, **kwargs)
    if fetched is not None:  # from here on it is a folder, which has no revisions
        options = replace(options, revision="")
        kwargs.pop("revision", None)
    source = name if fetched is None else str(fetched)
    place = Path(source)
    kept = _folder_with_sidecar(place)
    trusted = options.trust_remote_code if kwargs.get(TRUST) is None else bool(kwargs[TRUST])
    stored = None if kept is None else sidecar.read(kept, trusted=trusted)
    kwargs["output_loading_info"] = True
    read = load_adapter(place, options, **kwargs) if is_adapter(place) else fetch_model(source, options, **kwargs)
    model: PreTrainedModel = read[0]
    missing = sorted(read[1]["missing_keys"])  # they would stay random
    if missing:
        sentence = f"{directory} has no weights for {', '.join(missing[:3])}"
        raise Unreadable.because(str(directory), sentence, remedy="fetch it again")
    if kept and stored:
        extension, how = stored
        sidecar.fill(kept, host_of(model), extend(model, extension, **how).layers)
    if fetched is not None and not is_adapter(place):
        named_as(model, name)
    return model if options.device in ("", AUTO) else move(model, options.device)


def move(model: Any, device: str) -> Any:
    """The model on one device."""
    try:
        return model.to(device)
    except (AssertionError, RuntimeError, ValueError) as reason:  # without CUDA, an index too high, quantised weights
        detail = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise InvalidValue("device", "an available device", device, remedy=detail) from reason


def _folder_with_sidecar(place: Path) -> Path | None:
    """The folder that has the extension of a model: its own or, for an adapter without one, its base model's."""
    places = [place, Path(base_of(place))] if is_adapter(place) else [place]
    return next((place for place in places if holds((place / SIDECAR).is_file)), None)


def extended_host(model: nn.Module) -> tuple[PreTrainedModel, Handle]:
    """The model and its handle; a wrapped model, or one without an extension, is refused."""
    host = host_of(model)
    if host is not model:
        remedy = f"{MERGE}, then extend and save"
        raise InvalidValue("model", "a transformers model without a wrapper", type(model).__name__, remedy=remedy)
    handle, kind = required_handle(host), type(host).__name__
    require_merged(host, "saving or exporting")
    if kind not in loadable(loader_of(host.config, kind), host.config) and not hasattr(host.config, "auto_map"):
        remedy = "load the original model by its own class, and extend it again"
        raise DoesNotFit("model", "of a class that transformers' Auto classes load", kind, remedy=remedy)
    return host, handle


def required_handle(host: PreTrainedModel) -> Handle:
    """The handle of a model under an extension."""
    handle = handle_of(host)
    if handle is None:
        remedy = "extend it first, or use save_pretrained"
        raise InvalidValue("model", "under an extension", type(host).__name__, remedy=remedy)
    return handle


def save_weights(host: PreTrainedModel, place: Path, state: dict[str, Tensor] | None = None) -> None:
    """Save as transformers does, and restore the model's config, which that changes."""
    config_before = dict(host.config.__dict__)
    try:
        state = {name: value for name, value in (state or host.state_dict()).items() if PREFIX not in name}
        type(host).save_pretrained(host, place, state_dict=state)
    finally:
        host.config.__dict__.clear()
        host.config.__dict__.update(config_before)


def save_tokenizer(tokenizer: Any | None, place: Path) -> None:
    """Save the tokenizer, if any. Its writer raises plain exceptions, even for a full disk."""
    try:
        if tokenizer is not None:
            tokenizer.save_pretrained(place)
    except Exception as reason:
        raise InvalidValue("tokenizer", "one that can be written", str(reason), remedy="make room") from reason


def require_same(host: PreTrainedModel, place: Path, length: int) -> None:
    """Load what was written and compare logits, at the first positions and at far ones; refused where they differ."""
    trusting: dict[str, Any] = {TRUST: True} if runs_own_code(host) else {}
    device = device_of(host)
    if is_adapter(place) and format_of(host):  # the base model was quantised when it was loaded
        trusting["quantization_config"] = host.config.quantization_config
    again = load(place, dtype=host.dtype, **trusting).to(device)  # type: ignore[arg-type]
    name = (
        first_difference(host, host_of(again)) if format_of(host) else ""
    )  # finer than logits, which rounding changes
    if name:
        raise DoesNotFit.because("model", f"the saved model is not the same when loaded: {name} differs")
    slower = SLOWER_IN_HALF if device.type == "cpu" and host.dtype in (torch.bfloat16, torch.float16) else 1
    count = min(length, VERIFIED_TOKENS, affordable_tokens(host) // slower)
    ids = torch.arange(count, device=device)[None] * 7 % host.config.get_text_config().vocab_size
    for first in sorted({0, min(length, LAST_TESTED) - count}):
        places = torch.arange(first, first + count, device=device)[None]
        inputs = {"input_ids": ids, "position_ids": places, "use_cache": False}
        with _in_its_own_precision(host), quiet(host), quiet(again), torch.no_grad():
            expected, got = host(**inputs).logits.double(), again(**inputs).logits.double()
        error = float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())
        if not error <= allowed_error(host, host.dtype):
            sentence = f"the saved model is not the same when loaded: relative error {error:.1e} from token {first} on"
            raise DoesNotFit.because("model", sentence)


@contextmanager
def _in_its_own_precision(host: PreTrainedModel) -> Iterator[None]:
    """Trainer leaves autocast around the forward of a model that it trained in mixed precision."""
    wrapped, plain = host.__dict__.get("forward"), host.__dict__.get("_original_forward")
    try:
        if wrapped is not None and plain is not None:
            host.__dict__["forward"] = plain
        yield
    finally:
        if wrapped is not None:
            host.__dict__["forward"] = wrapped
