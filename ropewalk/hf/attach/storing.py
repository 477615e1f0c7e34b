"""The extension in a folder of weights: in the config where that can say it, else in the sidecar."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.attach.rotary_tables import TABLE_RTOL, table_slot
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.checkpoint.closed_config import FILE, close
from ropewalk.hf.checkpoint.config_schedule import require_expressible, standard_config, temperature_of
from ropewalk.hf.checkpoint.fetch import runs_own_code
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.hf.runtime.static_schedule import static_table


def store_unchecked(handle: Handle, place: Path, state: dict[str, Tensor] | None = None) -> None:
    """Store it beside what transformers or peft wrote. No weights are loaded to compare.

    So the config states the schedule only where its rotary modules, built anew, have the tables that are in force.
    """
    if (place / FILE).is_file() and not runs_own_code(handle.model):
        try:
            config = config_with_extension(handle, _target_len(handle))
            _require_followed(handle, config.get_text_config())
        except DoesNotFit:
            pass
        else:
            sidecar.remove(place)
            config.save_pretrained(place)
            return
    handle.keep(place, state)
    close(place)


def config_with_extension(handle: Handle, target_len: int | None) -> Any:
    """The model's config with the extension, or a refusal with the reason."""
    require_expressible(handle.extension, handle.layers)
    config = standard_config(handle.model.config, handle.extension, handle.layers, target_len)
    config.architectures = [type(handle.model).__name__]
    return config


def _target_len(handle: Handle) -> int | None:
    """What the caller named, or the schedule states; the trained length where neither does, as with a new base."""
    is_stated = handle.target_len is not None or math.isfinite(handle.extension.theta.stretch)
    return handle.target_len if is_stated else handle.facts.trained_len


def _require_followed(handle: Handle, text: Any) -> None:
    """Refuse a config of which a rotary module makes other tables."""
    for layer in handle.layers:
        if layer.probed.rotating and not layer.left_alone and not _follows(layer, handle.extension, text):
            raise DoesNotFit.because("config", f"layer {layer.depth} would not follow the schedule of the config")


def _follows(layer: ExtendedLayer, extension: Extension, text: Any) -> bool:
    slot = table_slot(layer.probed)
    try:
        module: Any = type(slot.module)(config=text)
        made = module._buffers[f"{slot.prefix}inv_freq"].double().cpu()
        temperature = float(getattr(module, f"{slot.prefix}attention_scaling"))
    except Exception:  # a class with other arguments, or one that refuses the config: whatever it raises
        return False
    wanted = static_table(extension, layer.facts).double()
    alike = made.shape == wanted.shape and torch.allclose(made, wanted, rtol=TABLE_RTOL, atol=1e-9)
    return alike and math.isclose(temperature, temperature_of(extension, layer), rel_tol=TABLE_RTOL)
