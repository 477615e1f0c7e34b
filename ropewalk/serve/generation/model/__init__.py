"""A model that serves several extensions at once, over pages of keys and values."""
