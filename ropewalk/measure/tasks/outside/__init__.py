"""Tasks from outside the package: in a file of the user's, or in an installed package."""
