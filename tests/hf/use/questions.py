"""A question, and contexts that answer it."""

WORDS = {f"w{n}": n for n in range(3, 101)} | {"<unk>": 0, "<s>": 1, "</s>": 2}


CONTEXTS = ["w5 w6 w7", " ".join(f"w{3 + n % 90}" for n in range(40)), "w9 w10", "w50 w51 w52 w53 w54 w55"]


QUESTION = "w20 w21"
