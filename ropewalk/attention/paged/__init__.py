"""Attention over pages: past tokens of many requests in pages of fixed size, as serving engines keep them."""

from ropewalk.attention.paged.batch import PagedBatch as PagedBatch
from ropewalk.attention.paged.layer import PagedLayer as PagedLayer
