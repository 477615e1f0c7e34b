"""Losses, perplexities, intervals and effective lengths."""
