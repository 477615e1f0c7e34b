"""What the source claims of fewer heads for keys and values."""

from __future__ import annotations

from studies.claims import ARTICLE_2, Claim
from studies.zoo.claims.sums import NOTHING, gain
from studies.zoo.figures import AccuracyTerm

CLAIMS = (
    Claim("gqa-after-5-percent", "Grouped queries after 5 % of the steps are as good as all heads: at most half a "
          "point worse.", "arXiv:2305.13245", gain("rope_to_2_kv_heads", "rope", at=(1,)), -NOTHING,
          "47.1 instead of 47.2 points"),
    Claim("gqa-better-than-mqa", "Grouped queries are better than a single key head after as much training.",
          "arXiv:2305.13245", gain("rope_to_2_kv_heads", "rope_to_1_kv_head", at=(1,)),
          theirs="47.1 instead of 46.6 points"),
    Claim("mqa-harms", "A single key head costs quality.", "arXiv:2305.13245",
          gain("rope", "rope_to_1_kv_head", at=(1,)), theirs="46.6 instead of 47.2 points"),
    Claim("mqa-harms-greatly", "Reduced to a single key head, and trained for 5 % more steps, a model may lose much "
          "quality: at least a tenth of the accuracy.",
          f"{ARTICLE_2} on arXiv:2305.13245", ((AccuracyTerm(9 / 10, "rope", 1),
                                              AccuracyTerm(-1, "rope_to_1_kv_head", 1)),),
          theirs="'may lower it greatly'; the tenth is ours"),
    Claim("mqa-needs-training", "Without training a single averaged key head breaks the model: at most half of its "
          "accuracy is left at 1x.", "arXiv:2305.13245", ((AccuracyTerm(1 / 2, "rope", 1),
                                                           AccuracyTerm(-1, "rope_with_1_kv_head", 1)),),
          theirs="'requires uptraining to be useful'; the half is ours"),
    Claim("gqa-untrained", "Without training grouped queries are better than a single averaged key head.",
          "arXiv:2305.13245", gain("rope_with_2_kv_heads", "rope_with_1_kv_head", at=(1,)),
          theirs="reasonable at once, while a single head needs training"),
)  # fmt: skip
