"""What the sources claim of windows, of first tokens that stay, and of texts that begin with a marker."""

from __future__ import annotations

from studies.claims import ARTICLE_2, Claim
from studies.zoo.claims.sums import A_POINT, COPIES, NOTHING, gain, gains, lost, since_2x
from studies.zoo.figures import PLAIN, REPEATED

CLAIMS = (
    Claim("window-untrained", "A window without the first tokens fails where texts begin with a marker: at 8x at most "
          "half of the accuracy is left.", "arXiv:2309.17453; 2308.16137", lost(1 / 2, "marked_under_window"),
          theirs=f"perplexity 5,158 instead of 5.40; 'very bad' without first tokens ({ARTICLE_2})"),
    Claim("lm-infinite-first-tokens", "LM-Infinite needs the first tokens: with them it is better at 8x than a window "
          "alone.", "arXiv:2308.16137", gain("marked_under_lm_infinite", "marked_under_window")),
    Claim("lm-infinite-better", "LM-Infinite reads 8x better than plain rotation, also where texts begin with no "
          "marker.", "arXiv:2308.16137",
          (*gain("marked_under_lm_infinite", "marked"), *gain("rope_under_lm_infinite", "rope")),
          theirs="figures of losses and of generated text"),
    Claim("lm-infinite-unmarked", "LM-Infinite needs the first tokens also where texts begin with no marker: at 8x it "
          "is better than a window alone.", "arXiv:2308.16137", gain("rope_under_lm_infinite", "rope_under_window")),
    Claim("lm-infinite-flat", "LM-Infinite loses nothing from 2x to 8x: at most half a point.", "arXiv:2308.16137",
          since_2x("marked_under_lm_infinite"), -NOTHING),
    Claim("streaming-flat",
          "StreamingLLM with four first tokens loses nothing from 2x to 8x: at most half a point.", "arXiv:2309.17453",
          since_2x("marked_under_streaming"), -NOTHING, "perplexity 5.40; 5.43 where all is computed again"),
    Claim("streaming-newlines", "Four newlines serve StreamingLLM nearly as well as the first tokens: at 8x they cost "
          "less than a point.", "arXiv:2309.17453", gain("marked_with_newlines", "marked_under_streaming"), -A_POINT,
          "perplexity 5.60 instead of 5.40"),
    Claim("streaming-one", "Where texts begin with a marker, it is the only first token that StreamingLLM needs: with "
          "four it gains less than a point at 8x.", "arXiv:2309.17453",
          gain("marked_with_1_sink", "marked_under_streaming"), -A_POINT,
          "perplexity 18.01 with one, 18.02 with four"),
    Claim("streaming-eight", "More than four first tokens gain little: eight gain less than a point at 8x.",
          "arXiv:2309.17453", gain("marked_under_streaming", "marked_with_8_sinks"), -A_POINT),
    Claim("streaming-no-memory", "StreamingLLM does not lengthen the context: from 1x to 8x repeated text gains at "
          "most a point more than other text.", "arXiv:2309.17453", gains("marked_under_streaming", PLAIN, REPEATED),
          -A_POINT, note=COPIES),
)  # fmt: skip
