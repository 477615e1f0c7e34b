"""Any causal language model of transformers: probed, extended, generated with. The only importer of transformers.

Each name is imported when it is first asked for: `check` runs beside an engine that comes with an older transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.hf.attach.extend import extend as extend, extended as extended
    from ropewalk.hf.attach.handle import Handle as Handle
    from ropewalk.hf.runtime.caches import writing as writing
    from ropewalk.hf.use.contexts import (
        ContextAnswer as ContextAnswer,
        nbce_generate as nbce_generate,
        nbce_stream as nbce_stream,
    )
    from ropewalk.hf.use.contrast import contrast_stream as contrast_stream
    from ropewalk.hf.use.convert import convert as convert
    from ropewalk.hf.use.inspect import Inspection as Inspection, inspect as inspect
    from ropewalk.hf.use.long_text import (
        TokenScores as TokenScores,
        read as read,
        score as score,
        score_tokens as score_tokens,
        stream as stream,
    )
    from ropewalk.hf.use.parallel import ape_stream as ape_stream
    from ropewalk.hf.use.push import push_to_hub as push_to_hub
    from ropewalk.hf.use.save import load as load, save as save

_HOMES = {
    "attach.extend": ("extend", "extended"),
    "attach.handle": ("Handle",),
    "runtime.caches": ("writing",),
    "use.contexts": ("ContextAnswer", "nbce_generate", "nbce_stream"),
    "use.contrast": ("contrast_stream",),
    "use.convert": ("convert",),
    "use.inspect": ("Inspection", "inspect"),
    "use.long_text": ("TokenScores", "read", "score", "score_tokens", "stream"),
    "use.parallel": ("ape_stream",),
    "use.push": ("push_to_hub",),
    "use.save": ("load", "save"),
}
_LATER = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ropewalk.hf' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"ropewalk.hf.{_LATER[name]}"), name)
    return globals()[name]
