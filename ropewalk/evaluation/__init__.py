"""Measuring: which extension serves a model, at which length, at what cost."""

from ropewalk.evaluation.losses import Measured as Measured
from ropewalk.evaluation.losses import measured as measured
from ropewalk.evaluation.losses import passages as passages
from ropewalk.evaluation.losses import repeated as repeated
from ropewalk.evaluation.perplexity import breakdown as breakdown
from ropewalk.evaluation.perplexity import rolling as rolling
from ropewalk.evaluation.perplexity import strided as strided
from ropewalk.evaluation.perplexity import truncated as truncated
