"""An OpenAI-compatible server: one set of weights under many extensions at once."""
