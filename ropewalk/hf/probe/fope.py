"""FoPE checkpoints are named and refused: their cos and sin are not those of a rotation.

    cos_i(n) = sum_j A_ij cos(n theta_j),   sin_i(n) = sum_j B_ij sin(n theta_j)

A and B are learned matrices, one of each for a key head, and pairs that turn less than once in the trained length are
left out of the sum. So no pair has a frequency of its own, cos^2 + sin^2 is not 1, and no schedule has anything to
change. transformers keeps the keys of such a config and computes plain RoPE from it.

Source: Hua et al. 2024 (Fourier Position Embedding), arXiv:2412.17739, sec. 4. The keys are those of Intern-S1-Pro, as
vLLM, SGLang and LMDeploy read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.errors import DoesNotFit

TYPE_OF_FOPE, SWITCH_OF_FOPE = "fope", "use_fope"
KEYS_OF_FOPE = ("fope_init_factor", "fope_sep_head", "num_inv_freq")
REASON = "its cos and sin are mixed by learned matrices, so it is not a rotation, and no schedule applies to it"
SERVED_BY = "serve it unchanged: vLLM, SGLang and LMDeploy have code of their own for it (Intern-S1-Pro)"
HOLDERS = ("rope_parameters", "rope_scaling")


def require_rotation(config: Any) -> None:
    """Refuse a config whose rope parameters say FoPE."""
    for part in (config, config.get_text_config()):
        require_no_fope({name: getattr(part, name, None) for name in HOLDERS})


def require_no_fope(values: Mapping[str, Any]) -> None:
    """Refuse the values of a config, as its file has them, that say FoPE: in rope parameters, at any depth."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            if name in HOLDERS and (key := _fope_key(value)):
                sentence = f"the checkpoint has FoPE (Fourier Position Embedding; {key} in its config): {REASON}"
                raise DoesNotFit.because("rope_parameters", sentence, remedy=SERVED_BY)
            require_no_fope(value)


def _fope_key(parameters: Mapping[str, Any]) -> str:
    """The key by which rope parameters say FoPE, also in those of one type of layer; empty where none does."""
    if TYPE_OF_FOPE in (parameters.get("rope_type"), parameters.get("type")):
        return "rope_type"
    if parameters.get(SWITCH_OF_FOPE):
        return SWITCH_OF_FOPE
    key = next((key for key in KEYS_OF_FOPE if parameters.get(key) is not None), "")
    parts = (part for part in parameters.values() if isinstance(part, Mapping))
    return key or next((key for part in parts if (key := _fope_key(part))), "")
