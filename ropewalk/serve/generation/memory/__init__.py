"""The memory of keys and values: pages, and who holds them."""
