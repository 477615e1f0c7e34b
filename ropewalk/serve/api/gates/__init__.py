"""What every request passes before its route: counting, the API key, the name of the host."""
