"""A model as a GGUF file, for llama.cpp: written here with the package `gguf`, without a checkout of llama.cpp."""
