"""Continuous batching: requests join and leave between steps, each under its own extension. Nothing here knows HTTP."""
