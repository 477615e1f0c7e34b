"""Training: its data, the trainer, and recipes."""
