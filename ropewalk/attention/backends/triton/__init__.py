"""The Triton backend: its kernels, the tables they read, and how they are launched."""
