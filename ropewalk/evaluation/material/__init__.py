"""What models are measured on: a subject, its prompts and words."""
