"""What can be measured: one task in each file."""

from ropewalk.measure.tasks.cache import QuantisedCache as QuantisedCache
from ropewalk.measure.tasks.context import Context as Context
from ropewalk.measure.tasks.damage import Damage as Damage
from ropewalk.measure.tasks.generated.coreference import Coreference as Coreference
from ropewalk.measure.tasks.generated.graph_walks import GraphWalks as GraphWalks
from ropewalk.measure.tasks.generated.json_recall import JsonRecall as JsonRecall
from ropewalk.measure.tasks.long_context.latent import Latent as Latent
from ropewalk.measure.tasks.long_context.longppl import LongPPL as LongPPL
from ropewalk.measure.tasks.many_contexts import ManyContexts as ManyContexts
from ropewalk.measure.tasks.many_shot.label_map import LabelMap as LabelMap
from ropewalk.measure.tasks.many_shot.shots import Shots as Shots
from ropewalk.measure.tasks.needle import Needle as Needle
from ropewalk.measure.tasks.passkey import Passkey as Passkey
from ropewalk.measure.tasks.perplexity import Perplexity as Perplexity
from ropewalk.measure.tasks.repetition import Repetition as Repetition
from ropewalk.measure.tasks.ruler import Ruler as Ruler
from ropewalk.measure.tasks.streamed import StreamEval as StreamEval
from ropewalk.measure.tasks.task import Task as Task

ALL: tuple[type[Task], ...] = (
    Context,
    Repetition,
    Passkey,
    Needle,
    Ruler,
    Coreference,
    GraphWalks,
    JsonRecall,
    LabelMap,
    Shots,
    StreamEval,
    Damage,
    Perplexity,
    LongPPL,
    Latent,
    ManyContexts,
    QuantisedCache,
)
