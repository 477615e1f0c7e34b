"""Tasks that show many examples of a made-up rule: labels of inputs."""
