"""Cells measured on a Ray cluster."""
