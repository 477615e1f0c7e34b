"""Verbs whose result a browser shows."""
