"""What `rw.compare`, `rw.fit` and `rw.diagnose` do, for Python, notebooks and the command line."""
