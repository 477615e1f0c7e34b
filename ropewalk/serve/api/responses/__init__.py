"""What clients get: answers in OpenAI's shape, streamed or whole, and errors."""
