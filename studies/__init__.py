"""What articles claim, tested with Ropewalk: not installed with it, and nothing in it is needed to use it."""
