"""Tasks that ask what far text is good for: key tokens, and needles that share no word with their question."""
