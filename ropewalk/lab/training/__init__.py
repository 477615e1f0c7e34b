"""One training run: its loop, checkpoints, lengths, processes, and how it stops."""
