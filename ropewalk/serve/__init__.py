"""An OpenAI-compatible server for a laboratory: one set of weights under many extensions at once."""
