"""The equation, fast: one entry, several backends, each checked against the oracle."""

from ropewalk.attention.attend import attend as attend, explain as explain
from ropewalk.attention.cache.buffers import CacheState as CacheState
from ropewalk.attention.cache.head_caches import HeadCaches as HeadCaches, cache_for as cache_for
from ropewalk.attention.cache.layer_cache import LayerCache as LayerCache
from ropewalk.attention.token_loss import nll as nll, token_scores as token_scores
