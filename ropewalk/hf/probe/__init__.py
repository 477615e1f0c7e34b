"""What a model does with positions, masks and caches, found out by running it."""
