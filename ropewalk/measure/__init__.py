"""Measuring: which extension serves a model, at which length, at what cost."""
