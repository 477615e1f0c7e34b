"""Exporting a model for an engine."""
