"""lm-evaluation-harness on an extended model."""
