"""The fixtures of a small model in a folder."""

from measured_folder import corpus as corpus, place as place
