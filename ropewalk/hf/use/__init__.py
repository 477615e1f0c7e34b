"""What people call on a model: inspect, score, stream, generate, convert, save and load."""
