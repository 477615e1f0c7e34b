"""llama.cpp: what it computes from a file, and what is exported to it."""
