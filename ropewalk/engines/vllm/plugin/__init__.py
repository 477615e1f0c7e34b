"""The plugin for vLLM: what `ropewalk export --target vllm` wrote as a plugin's model runs there.

register.py     what vLLM calls when it starts: registers everything below
rotary.py       tables and scales of rows, in vLLM's rotary modules
attention.py    our attention in place of vLLM's
cpu_kernel.py   the kernel that computes it on CPUs
pages.py        its keys and values in vLLM's pages
refusals.py     what is refused while a model is loaded

The plan of a model is read by `engines/layer_plan.py`; `versions.py` beside this folder says which vLLM was tested.
"""
