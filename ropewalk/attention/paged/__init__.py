"""Attention over pages: past tokens of many requests in pages of fixed size, as serving engines keep them."""

from ropewalk.attention.paged.layer import PagedLayer as PagedLayer
from ropewalk.attention.paged.rows import PagedBatch as PagedBatch
