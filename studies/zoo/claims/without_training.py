"""What the sources claim of schedules and scales that a trained model is read under."""

from __future__ import annotations

from studies.claims import ARTICLE_2, ARTICLE_3, Claim
from studies.zoo.claims.sums import A_POINT, gain, kept, lost, since_2x

CLAIMS = (
    Claim("log-n-untrained-helps", "log-n without training reduces the loss of accuracy: it is better than plain "
          "rotation at 8x.", "kexue.fm/8823", gain("rope_under_log_n", "rope")),
    Claim("log-n-untrained-mends-little", "log-n without training does not prevent the loss of accuracy: at 8x at "
          "most half of the accuracy is left.", "kexue.fm/8823", lost(1 / 2, "rope_under_log_n")),
    Claim("pi-untrained", "Without training PI fails: at 8x at most a third of the accuracy is left.",
          "kexue.fm/9675; 9706", lost(1 / 3, "rope_under_pi"), theirs="49.41 % at 1x, 13.54 % at 8x"),
    Claim("pi-over-none", "Without training PI reads 8x better than plain rotation.", ARTICLE_3,
          gain("rope_under_pi", "rope"), theirs="'so the model can understand' positions beyond its length; "
          "names no training; articles 2 and 5 say that PI needs it"),
    Claim("ntk-untrained", "Without training NTK is better than PI at 8x.", "kexue.fm/9675; 9706",
          gain("rope_under_ntk", "rope_under_pi"), theirs="39.27 instead of 13.54 %"),
    Claim("ntk-4x", "Without training NTK reads 4x with hardly any loss: at most a point.",
          f"bloc97 2023, in {ARTICLE_2}",
          kept(1, "rope_under_ntk", 4), -A_POINT, "'minimal perplexity degradation' of a 2k model at 8k"),
    Claim("by-parts-untrained", "Without training NTK by parts is better than NTK at 8x.", "arXiv:2309.00071",
          gain("rope_under_by_parts", "rope_under_ntk")),
    Claim("yarn-temperature", "YaRN's temperature makes NTK by parts better over the whole of the longer context, "
          "without training: at 2x, 4x and 8x.", "arXiv:2309.00071",
          gain("rope_under_yarn", "rope_under_by_parts", at=(2, 4, 8))),
    Claim("yarn-coefficient", "YaRN's 0.1 ln s + 1 is the best temperature for s of 2, 4 and 8: better than with 0.05 "
          "and with 0.2.", "arXiv:2309.00071", (*gain("rope_under_yarn", "rope_under_half_yarn", at=(2, 4, 8)),
                                               *gain("rope_under_yarn", "rope_under_twice_yarn", at=(2, 4, 8))),
          theirs="0.1, fitted to LLaMA"),
    Claim("slow-pairs", "Fast pairs extrapolate, slow ones are interpolated: without training it is better at 8x to "
          "interpolate the pairs that make no whole rotation in the trained length (8 of 12) than those that do.",
          "kexue.fm/9675", gain("rope_with_slow_pairs_slowed", "rope_with_fast_pairs_slowed")),
    Claim("yarn-untrained", "Without training YaRN is better than NTK at 8x.", "arXiv:2309.00071; kexue.fm/9859",
          gain("rope_under_yarn", "rope_under_ntk"), theirs="47.45 instead of 42.20 %"),
    Claim("rerope-untrained", "ReRoPE with a window of half the trained length loses less than a point from 2x to "
          "8x, without training.", "kexue.fm/9708", since_2x("rope_under_rerope"), -A_POINT,
          "49.41 % at 1x, 48.48 % at 8x"),
)  # fmt: skip
