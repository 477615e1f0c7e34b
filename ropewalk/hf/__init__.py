"""Any causal language model of transformers: probed, extended, generated with. The only importer of transformers."""

from ropewalk.hf.attach.extend import extend as extend
from ropewalk.hf.attach.extend import extended as extended
from ropewalk.hf.attach.handle import Handle as Handle
from ropewalk.hf.engine_export.export import Exported as Exported
from ropewalk.hf.engine_export.export import export as export
from ropewalk.hf.use.contexts import ContextAnswer as ContextAnswer
from ropewalk.hf.use.contexts import nbce_generate as nbce_generate
from ropewalk.hf.use.contexts import nbce_stream as nbce_stream
from ropewalk.hf.use.convert import convert as convert
from ropewalk.hf.use.inspect import Inspection as Inspection
from ropewalk.hf.use.inspect import inspect as inspect
from ropewalk.hf.use.long_text import TokenScores as TokenScores
from ropewalk.hf.use.long_text import read as read
from ropewalk.hf.use.long_text import score as score
from ropewalk.hf.use.long_text import score_tokens as score_tokens
from ropewalk.hf.use.long_text import stream as stream
from ropewalk.hf.use.save import load as load
from ropewalk.hf.use.save import save as save
