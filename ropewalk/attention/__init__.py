"""The equation, fast: one entry, several backends, each checked against the oracle."""

from ropewalk.attention.attend import attend as attend
from ropewalk.attention.attend import explain as explain
from ropewalk.attention.cache.layer_cache import LayerCache as LayerCache
from ropewalk.attention.cache.session import Session as Session
from ropewalk.attention.token_loss import nll as nll
from ropewalk.attention.token_loss import token_scores as token_scores
