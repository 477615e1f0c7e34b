"""What can be measured: one file, one task."""

from ropewalk.evaluation.tasks.context import Context as Context
from ropewalk.evaluation.tasks.damage import Damage as Damage
from ropewalk.evaluation.tasks.passkey import Passkey as Passkey
from ropewalk.evaluation.tasks.repetition import Repetition as Repetition
from ropewalk.evaluation.tasks.signature import Task as Task

ALL: tuple[type[Task], ...] = (
    Context,
    Repetition,
    Passkey,
    Damage,
)
