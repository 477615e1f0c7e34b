"""The plugin for vLLM: what `ropewalk export --target vllm` wrote as a plugin's model runs there.

plugin.py      what vLLM calls when it starts: registers everything below
reading.py     the plan in a model's config
rotary.py      tables and scales of rows, in vLLM's rotary modules
loading.py     what is refused while a model is loaded
versions.py    the versions of vLLM that this was tested with
"""
