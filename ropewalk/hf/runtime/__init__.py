"""What runs in each forward pass of an extended model."""
