"""What the sources claim of text that is far away: whether it is used, not only survived."""

from __future__ import annotations

from studies.claims import Claim
from studies.zoo.claims.sums import A_POINT, from_afar

AFAR = (
    "The last 64 tokens of these texts stand in them once before, four trained lengths back. Whoever sees that far can "
    "copy them. The articles judge by text that repeats at once; the point is our bound."
)
CLAIMS = (
    Claim("hwfa-far", "HWFA uses far text: at 8x tokens that also stand four trained lengths back are read better, by "
          "more than a point.", "kexue.fm/9603", from_afar("hwfa"), A_POINT, note=AFAR),
    Claim("hwfa-rerope-far", "HWFA with ReRoPE in two full layers uses far text: at 8x tokens that also stand four "
          "trained lengths back are read better, by more than a point.", "kexue.fm/9731",
          from_afar("hwfa_rerope"), A_POINT, note=AFAR),
    Claim("rerope-untrained-far", "ReRoPE without training uses far text: at 8x tokens that also stand four "
          "trained lengths back are read better, by more than a point.", "kexue.fm/9708",
          from_afar("rope_under_rerope"), A_POINT, note=AFAR),
    Claim("streaming-no-far", "StreamingLLM does not use text that it has dropped: at 8x tokens that also "
          "stand four trained lengths back are read better by at most a point.", "arXiv:2309.17453",
          from_afar("marked_under_streaming", -1), -A_POINT, note=AFAR),
)  # fmt: skip
