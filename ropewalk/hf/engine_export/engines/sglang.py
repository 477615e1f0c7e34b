"""SGLang, as its source reads a config (0.5.23: layers/rotary_embedding/factory.py; not run):

yarn        its temperature is attn_factor * (0.1 ln(factor) + 1); its table grows with the text
longrope    its temperature is short_mscale and long_mscale; pairs must be halves
latent      every schedule is DeepSeek's YaRN, its temperature that of mscale and mscale_all_dim
"""

from __future__ import annotations

from ropewalk.hf.engine_export.engines.signature import StatedModel
from ropewalk.hf.engine_export.engines.signature import read_as_deepseek_and_phi as read

__all__ = ["command", "read"]


def command(place: str, stated: StatedModel) -> str:
    """Serves it."""
    return f"python -m sglang.launch_server --model-path {place} --context-length {stated.length}"
