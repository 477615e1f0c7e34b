"""Extensions inside serving engines: what an engine computes in each layer, and the plugins that compute it."""
