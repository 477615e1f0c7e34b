"""RULER's thirteen kinds of tasks, in one file for each family."""

from ropewalk.measure.tasks.ruler.task import KINDS as KINDS, Ruler as Ruler
