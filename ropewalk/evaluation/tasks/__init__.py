"""What can be measured: one task in each file."""

from ropewalk.evaluation.tasks.context import Context as Context
from ropewalk.evaluation.tasks.damage import Damage as Damage
from ropewalk.evaluation.tasks.generated.coreference import Coreference as Coreference
from ropewalk.evaluation.tasks.generated.graph_walks import GraphWalks as GraphWalks
from ropewalk.evaluation.tasks.generated.json_recall import JsonRecall as JsonRecall
from ropewalk.evaluation.tasks.long_context.latent import Latent as Latent
from ropewalk.evaluation.tasks.long_context.longppl import LongPPL as LongPPL
from ropewalk.evaluation.tasks.many_contexts import ManyContexts as ManyContexts
from ropewalk.evaluation.tasks.many_shot.label_map import LabelMap as LabelMap
from ropewalk.evaluation.tasks.many_shot.shots import Shots as Shots
from ropewalk.evaluation.tasks.needle import Needle as Needle
from ropewalk.evaluation.tasks.passkey import Passkey as Passkey
from ropewalk.evaluation.tasks.perplexity import Perplexity as Perplexity
from ropewalk.evaluation.tasks.repetition import Repetition as Repetition
from ropewalk.evaluation.tasks.ruler import Ruler as Ruler
from ropewalk.evaluation.tasks.signature import Task as Task
from ropewalk.evaluation.tasks.streamed import StreamEval as StreamEval

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
)
