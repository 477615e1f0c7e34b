"""What comes with the rotation of a layer: norms after it, and tables of modules that attend in their own way."""
