"""Recipes: one function each, from a corpus to a trained model in a folder."""
