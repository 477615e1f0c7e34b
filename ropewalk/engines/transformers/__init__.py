"""transformers as an engine: what it computes from a config, and what is exported to it."""
