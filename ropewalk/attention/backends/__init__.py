"""How attention is computed: one file for each backend, and `choose`, which picks one."""
