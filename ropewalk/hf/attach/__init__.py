"""Putting an extension on a model, and taking it off."""
