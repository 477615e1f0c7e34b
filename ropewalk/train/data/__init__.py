"""Training rows: tokens, packing, mixtures, puzzles and position numbers."""
