"""What models are measured on: a subject (a model with its texts), prompts, and words to hide."""
