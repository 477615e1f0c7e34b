"""Measuring: which extension serves a model, at which length, at what cost."""

from ropewalk.evaluation.metrics.losses import HeldOutTexts as HeldOutTexts
from ropewalk.evaluation.metrics.losses import TokenLosses as TokenLosses
from ropewalk.evaluation.metrics.losses import passages as passages
from ropewalk.evaluation.metrics.losses import repeated as repeated
from ropewalk.evaluation.metrics.losses import token_losses as token_losses
from ropewalk.evaluation.metrics.perplexity import breakdown as breakdown
from ropewalk.evaluation.metrics.perplexity import rolling as rolling
from ropewalk.evaluation.metrics.perplexity import strided as strided
from ropewalk.evaluation.metrics.perplexity import truncated as truncated
