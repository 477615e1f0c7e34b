"""The methods, a folder for each factor of the equation, and what they are written with."""
