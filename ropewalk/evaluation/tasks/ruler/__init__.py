"""RULER's thirteen kinds, one small file for each family of them."""

from ropewalk.evaluation.tasks.ruler.task import KINDS as KINDS
from ropewalk.evaluation.tasks.ruler.task import Ruler as Ruler
