"""What clients send: bodies read within bounds, fields checked one by one, texts made tokens."""
