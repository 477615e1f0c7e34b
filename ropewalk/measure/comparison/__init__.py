"""`compare`: cells, the store of their results, the workers that measure them, and the verdicts."""
