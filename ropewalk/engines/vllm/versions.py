"""The versions of vLLM that `make engines` tested the plugin with. Another version is refused, not guessed."""

from __future__ import annotations

TESTED = ("0.32",)


def why_unknown(version: str) -> str:
    """Why a version of vLLM is not known; empty for one that is."""
    if any(version == known or version.startswith(f"{known}.") for known in TESTED):
        return ""
    tested = ", ".join(f"{known}.x" for known in TESTED)
    return f"this version of Ropewalk was tested with vLLM {tested}, and vLLM is {version}"
