"""The lab: training data, training and recipes."""
