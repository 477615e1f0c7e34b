"""Who may import whom, from the ground up."""

# From the ground up. A module may import from lower ranks and, outside the factors, from its own.
RANKS = [
    ("errors",),
    ("models", "signals"),
    ("files",),
    ("folders",),
    ("methods",),
    ("extension",),
    ("equation", "attention"),
    ("hf", "testing"),
    ("engines", "texts"),
    ("measure",),
    ("page", "train", "search"),
    ("serve",),
    ("cli",),
    ("__main__",),
]


RANK = {part: rank for rank, parts in enumerate(RANKS) for part in parts}
