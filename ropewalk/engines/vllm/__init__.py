"""vLLM: what it computes from a config, what is exported to it, and the plugin that runs the rest."""
