"""The NTK-aware family: a larger base in place of slower positions."""
