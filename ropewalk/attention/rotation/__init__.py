"""Rotating queries and keys: angles in float64, rounded once."""
