"""What is to be computed, from positions alone: sequences, segments, tiles, and what a cache must keep."""
