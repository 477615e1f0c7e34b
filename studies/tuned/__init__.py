"""Tuned: a model under each schedule, without and with further training, and the claims of their sources."""
