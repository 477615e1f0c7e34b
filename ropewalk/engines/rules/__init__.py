"""What every engine has in common: how a rotation is computed, and how an extension is stated."""
