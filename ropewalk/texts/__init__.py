"""Texts that models are measured and trained on, and which of them are held out."""
