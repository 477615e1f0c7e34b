"""The plans of a model that vLLM loads, with the methods that lie as files in its folder.

Such a file runs only where vLLM was started with --trust-remote-code, and only if it has the hash of the export. A
method of a package is found where that package is installed beside vLLM.
"""

from __future__ import annotations

from typing import Any

from ropewalk.engines.layer_plan import ModelPlan, admit_methods, plans_of
from ropewalk.hf.checkpoint.own_files import folder_of


def plans_of_model(model_config: Any) -> list[ModelPlan]:
    """The plans in the config of a model; every process of vLLM asks here before it reads one."""
    name = getattr(model_config, "hf_config_path", None) or model_config.model
    admit_methods(model_config.hf_text_config, folder_of(str(name)), trusted=bool(model_config.trust_remote_code))
    return plans_of(model_config.hf_text_config)
