"""Tuned: a model under each schedule, as it is and trained on, and what that says of the claims of their sources."""
