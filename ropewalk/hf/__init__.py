"""Any causal language model of transformers: probed, extended, generated with. The only importer of transformers."""

from ropewalk.hf.contexts import Answer as Answer
from ropewalk.hf.contexts import nbce_generate as nbce_generate
from ropewalk.hf.contexts import nbce_stream as nbce_stream
from ropewalk.hf.converting import convert as convert
from ropewalk.hf.exporting import Exported as Exported
from ropewalk.hf.exporting import export as export
from ropewalk.hf.extending import Handle as Handle
from ropewalk.hf.extending import extend as extend
from ropewalk.hf.extending import extended as extended
from ropewalk.hf.inspecting import Inspection as Inspection
from ropewalk.hf.inspecting import inspect as inspect
from ropewalk.hf.reading import Judged as Judged
from ropewalk.hf.reading import judge as judge
from ropewalk.hf.reading import read as read
from ropewalk.hf.reading import score as score
from ropewalk.hf.reading import stream as stream
from ropewalk.hf.saving import load as load
from ropewalk.hf.saving import save as save
