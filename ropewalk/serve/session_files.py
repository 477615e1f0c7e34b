"""Where a session is kept on disk. Its name may be any text, and some systems do not tell capitals from small ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

KEYS, CHAT = ".safetensors", ".chat.json"  # endings: what the engine has read, and a conversation's messages


def session_file(folder: Path, session: str, ending: str) -> Path:
    """The file of a session."""
    digest = hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return folder / f"{digest}{ending}"
