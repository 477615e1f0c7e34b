"""Trainers: continued training under a schedule, in each trainer's own settings."""
