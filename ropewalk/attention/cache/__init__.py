"""Past tokens: KV buffers, the session that all layers share, and the decoding step."""
