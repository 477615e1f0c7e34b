"""Extensions: one slot a factor, how they are written, and papers as presets."""
