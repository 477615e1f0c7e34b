"""What the sources claim of methods that a model is trained with."""

from __future__ import annotations

from studies.claims import ARTICLE_1, ARTICLE_5, Claim
from studies.zoo.claims.sums import A_POINT, COPIES, NOTHING, gain, gains, kept, lost, since_2x
from studies.zoo.figures import PLAIN, REPEATED

OTHER_NORMS = (
    "Our models are Qwen3s: their norms are on queries too, with learned gains, and logits are divided by the root of "
    "the head's width. The article normalises keys only, to length 1, without a gain and without that division. So "
    "this says little of the article's own models."
)
PUZZLES = "higher accuracy on 15 algorithmic tasks; no language modelling"
CLAIMS = (
    Claim("rope-fails", "Plain rotation fails beyond its length: at 8x at most 34.2 % of its accuracy is left.",
          "kexue.fm/9577", lost(0.342, "rope"), theirs="52.37 % at 1x, 17.87 % at 8x: 34.1 %"),
    Claim("rope-falls", "Plain rotation falls as in the article: at 2x at most 63.3 % and at 4x at most 43.7 % of "
          "its accuracy is left.", "kexue.fm/9577", (*lost(0.633, "rope", 2), *lost(0.437, "rope", 4)),
          theirs="52.37 % at 1x, 33.15 % at 2x, 22.85 % at 4x"),
    Claim("qk-bias-harmless", "Biases on queries and keys hardly change what is learned: at 1x at most half a point is "
          "lost.", "kexue.fm/9577", gain("qk_bias", "rope", at=(1,)), -NOTHING, "52.75 instead of 52.37 %"),
    Claim("qk-bias-better", "With biases on queries and keys accuracy falls later than without: it is higher at 2x, "
          "4x and 8x.", "kexue.fm/9577", gain("qk_bias", "rope", at=(2, 4, 8)),
          theirs="50.99, 45.25 and 39.55 % instead of 33.15, 22.85 and 17.87 %"),
    Claim("qk-bias-keeps", "With biases on queries and keys 96.6, 85.7 and 74.9 % of the accuracy stay at 2x, 4x and "
          "8x (the author: hard to reproduce).", "kexue.fm/9577",
          (*kept(0.966, "qk_bias", 2), *kept(0.857, "qk_bias", 4), *kept(0.749, "qk_bias")),
          theirs="52.75 % at 1x; 50.99, 45.25 and 39.55 %"),
    Claim("qk-bias-as-sandwich", "Biases on queries and keys may do as much as Sandwich: at 8x at most a point less.",
          "kexue.fm/9577, a guess", gain("qk_bias", "sandwich"), -A_POINT,
          "'hopeful', if two of the four terms are weak (here they are not)"),
    Claim("hwfa-flat", "HWFA loses less than a point from 2x to 8x.", "kexue.fm/9603",
          since_2x("hwfa"), -A_POINT, "48.70 % at 1x, 48.15 % at 8x; 'about 0.5 %' (article 1)"),
    Claim("hwfa-copies", "HWFA copies in texts beyond the trained length: from 1x to 8x repeated text gains more than "
          "other text.", "kexue.fm/9603", gains("hwfa", REPEATED, PLAIN),
          theirs="repeated text 80.84 % at 8x; other text 48.70 % at 1x, 48.15 % at 8x", note=COPIES),
    Claim("hwfa-over-windows", "HWFA's full layer helps: at 8x HWFA is better than windows alone, on repeated text "
          "too.", "kexue.fm/9603", (*gain("hwfa", "window"), *gain("hwfa", "window", kind=REPEATED))),
    Claim("hwfa-rerope-better", "HWFA with ReRoPE in two full layers is better than HWFA, at 1x and at 8x.",
          "kexue.fm/9731",
          gain("hwfa_rerope", "hwfa", at=(1, 8)), theirs="49.46 instead of 48.70 %; 49.36 instead of 48.15 %"),
    Claim("hwfa-rerope-flat", "With ReRoPE in its full layers HWFA loses nothing from 2x to 8x: at most half a point.",
          "kexue.fm/9731",
          since_2x("hwfa_rerope"), -NOTHING, "49.46 % at 1x, 49.36 % at 8x"),
    Claim("hwfa-rerope-rises", "With ReRoPE in its full layers HWFA may even rise: at 8x it is better than at 2x.",
          ARTICLE_1, since_2x("hwfa_rerope"), theirs="'may even rise' on eight times the length"),
    Claim("hwfa-rerope-copies-more", "With ReRoPE in its full layers HWFA reads repeated text at 8x better than "
          "without.", "kexue.fm/9731", gain("hwfa_rerope", "hwfa", kind=REPEATED),
          theirs="84.43 instead of 80.84 % at 8x of repeated text", note=COPIES),
    Claim("alibi-3x", "ALiBi loses nothing up to 3x: from 2x to 3x, at most half a point.", "arXiv:2108.12409",
          since_2x("alibi", 3), -NOTHING, "no loss up to 3x"),
    Claim("alibi-8x", "ALiBi loses nothing from 2x to 8x: at most half a point.", "arXiv:2108.12409",
          since_2x("alibi"), -NOTHING),
    Claim("alibi-10x", "ALiBi's loss at 10x is acceptable: nine tenths of its accuracy at 2x stay.",
          f"{ARTICLE_1} on arXiv:2108.12409",
          since_2x("alibi", 10, kept=9 / 10), theirs="'acceptable' at 10x; the bound is ours"),
    Claim("alibi-weak", "ALiBi extrapolates weakly: at 8x it is at most a point better than plain rotation behind a "
          "window of 64.", ARTICLE_5, gain("rope_under_window", "alibi"), -A_POINT,
          "'weak', so that large models use it little; the yardstick is ours"),
    Claim("kerple-flat", "KERPLE loses nothing from 2x to 8x: at most half a point.", "arXiv:2205.09921",
          since_2x("kerple"), -NOTHING),
    Claim("sandwich-flat", "Sandwich loses nothing from 2x to 8x: at most half a point.", "arXiv:2212.10356",
          since_2x("sandwich"), -NOTHING),
    Claim("sandwich-better", "Sandwich beats plain rotation at 8x.", "arXiv:2212.10356", gain("sandwich", "rope")),
    Claim("xpos-flat", "XPos with blockwise attention loses nothing from 2x to 8x: at most half a point.",
          "arXiv:2212.10554",
          since_2x("xpos"), -NOTHING),
    Claim("window-flat", "Windows that reach no further than the trained length, through all layers together, lose "
          "nothing from 2x to 8x: at most half a point.", "kexue.fm/9431", since_2x("window"), -NOTHING),
    Claim("windows-cost", "Windows alone are worse than full attention within the trained length.",
          ARTICLE_1, gain("rope", "window", at=(1,)), theirs="'not satisfactory'"),
    Claim("nope-window-flat", "Windows without any positions lose nothing from 2x to 8x: at most half a point.",
          "kexue.fm/9603",
          since_2x("nope_window"), -NOTHING),
    Claim("nope-window-worse", "Windows without any positions are worse than windows with rotation, at 1x and 8x.",
          "kexue.fm/9603", gain("window", "nope_window", at=(1, 8))),
    Claim("window-at-inference", "Without training, a window makes a trained model better at 8x.",
          "kexue.fm/9431", gain("rope_under_window", "rope")),
    Claim("random-rotary", "Rotation, trained with random numbering, beats plain rotation at 8x.", "arXiv:2305.16843",
          gain("randomized_rotary", "rope"), theirs=PUZZLES),
    Claim("random-learned", "Learned positions, trained with random numbering, beat plain rotation at 8x.",
          "kexue.fm/9444", gain("randomized_learned", "rope")),
    Claim("random-learned-gain", "Learned positions that are trained with random numbering read 8x better than learned "
          "positions that are interpolated.",
          "arXiv:2305.16843", gain("randomized_learned", "learned"), theirs=PUZZLES),
    Claim("learned-fails", "Learned positions do not extend: interpolated as in a vision transformer, they lose more "
          "than a point from 1x to 8x.", ARTICLE_1, lost(1, "learned"), A_POINT,
          theirs="learned positions are 'in general not extensible'; interpolation is what it names as an exception",
          note="The point is ours: the article does not say how well interpolated positions read."),
    Claim("nope-better", "No positions at all beat plain rotation at 8x.", "arXiv:2305.19466", gain("nope", "rope")),
    Claim("log-n-trained", "log-n, trained in, beats plain rotation at 8x.", "kexue.fm/8823; 9706",
          gain("log_n", "rope"), theirs="24.02 instead of 23.16 %"),
    Claim("key-norm-better", "With norms on queries and keys accuracy is higher than with plain rotation at 2x, 4x and "
          "8x.", "kexue.fm/9859", gain("key_norm", "rope", at=(2, 4, 8)), note=OTHER_NORMS),
    Claim("key-norm-flat", "With norms on queries and keys fewer than two points are lost from 2x to 8x.",
          "kexue.fm/9859",
          since_2x("key_norm"), -2 * A_POINT, "49.60 % at 1x, 47.69 % at 8x, 61.08 % of repeated text", OTHER_NORMS),
)  # fmt: skip
