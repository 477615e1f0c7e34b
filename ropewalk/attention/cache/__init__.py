"""Past tokens: KV buffers, the state that all layers share, and the decoding step."""
