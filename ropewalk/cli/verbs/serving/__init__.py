"""Verbs that serve: an engine behind HTTP."""
