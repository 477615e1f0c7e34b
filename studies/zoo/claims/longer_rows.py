"""What the sources claim of rows that become longer during training."""

from __future__ import annotations

from studies.claims import ARTICLE_2, ARTICLE_3, Claim
from studies.zoo.claims.sums import NOTHING, gain

CLAIMS = (
    Claim("longer-rows-later", "Short rows for 20, 40 or 80 % of the steps and rows of eight times the length for the "
          "rest are as good at 8x as long rows throughout: at most half a point worse.", "arXiv:2309.16039",
          tuple(terms for share in (20, 40, 80) for terms in gain(f"longer_from_{share}", "longer_from_0")), -NOTHING,
          "perplexity 7.59 of each of the three, 7.67 of long rows throughout; up to 40 % less computation",
          "It is judged only if the models with long rows throughout read half of repeated text right. With less they "
          "have not learned to copy, and the figures say nothing of the order of the rows."),
    Claim("longer-rows-soon", "Rows should become longer after 20 to 40 % of the steps: at 8x both are better than "
          "after 80 %.", f"{ARTICLE_2} on arXiv:2309.16039",
          (*gain("longer_from_20", "longer_from_80"), *gain("longer_from_40", "longer_from_80")),
          theirs="'seems a bit better'; perplexities of books 6.46, 6.46 and 6.49 say so, of the web (7.59 of each) "
          "and Wikipedia (4.26, 4.25, 4.25) they do not"),
    Claim("longer-rows-at-all", "Longer rows under a base of 500,000 help whenever they begin: after 20, 40 or 80 % of "
          "the steps they are better at 8x than short rows throughout.", "arXiv:2309.16039",
          tuple(terms for share in (20, 40, 80) for terms in gain(f"longer_from_{share}", "rope")),
          theirs="the training loss falls at each switch from 4,096 to 32,768 tokens; ours is accuracy at 8x"),
    Claim("short-then-extended", "Long rows throughout cost more than short rows and an extension afterwards: after as "
          "many tokens short rows and YaRN, without further training, are better at 8x.", ARTICLE_3,
          gain("rope_under_yarn", "longer_from_0"), theirs="'very' costly, 128k instead of 4k tokens",
          note="With short rows attention has an eighth of the pairs, so the same tokens cost less too. With many more "
          "tokens long rows may win: this is about our budget."),
)  # fmt: skip
