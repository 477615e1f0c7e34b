"""`compare`: cells, the store that keeps them, the workers that compute them, and the verdicts."""
