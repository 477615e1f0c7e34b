"""Search: the best extension for a model, a text and a target length, with the evidence."""
