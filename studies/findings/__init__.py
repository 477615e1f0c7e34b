"""Fifteen findings of the studies: what holds, in raw units, on which models, and one picture each."""
