"""Tasks beyond needles, made from words and numbers: a conversation, a graph, a dictionary."""
