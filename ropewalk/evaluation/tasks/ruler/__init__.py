"""RULER's thirteen kinds of tasks, in one file for each family."""

from ropewalk.evaluation.tasks.ruler.task import KINDS as KINDS
from ropewalk.evaluation.tasks.ruler.task import Ruler as Ruler
