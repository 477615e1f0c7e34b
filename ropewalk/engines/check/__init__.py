"""What a serving engine will compute from a checkpoint."""
