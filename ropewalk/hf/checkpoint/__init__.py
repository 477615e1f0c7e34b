"""What is read and written on disk: configs, weights, and the extension's own file."""
