"""Reaches that see every key, and compress the distances of far keys into those of training."""
