"""Recipes: functions that train a model from a corpus into a folder, each with its record of settings."""
