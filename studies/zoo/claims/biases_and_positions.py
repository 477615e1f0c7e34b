"""What the articles claim, or guess, of other positions and of biases in projections."""

from __future__ import annotations

from studies.claims import ARTICLE_1, Claim
from studies.zoo.claims.sums import NOTHING, gain

BIASES = (
    "Our models have biases in every projection of attention, and none in feed-forward layers; those papers' models "
    "have them in other places too."
)
CLAIMS = (
    Claim("rotation-over-learned", "Rotation reads longer texts by a change of the computation, learned positions do "
          "not: at 8x YaRN, without training, is better than learned positions that are interpolated.",
          ARTICLE_1, gain("rope_under_yarn", "learned"),
          theirs="sinusoidal and rotary positions 'are very extensible', learned ones 'in general are not'"),
    Claim("sinusoidal-over-learned", "Sinusoidal positions extend better than learned positions that are interpolated: "
          "they are better at 8x.", ARTICLE_1, gain("sinusoidal", "learned"),
          theirs="sinusoidal and rotary positions 'are very extensible', learned ones 'in general are not'"),
    Claim("alibi-alone", "ALiBi extrapolates without other positions: without any it reads 8x better than plain "
          "rotation.", f"{ARTICLE_1} on arXiv:2108.12409", gain("alibi", "rope"),
          theirs="'no other position encoding is needed'",
          note="At 1x it pays: there ALiBi alone is below plain rotation, and rotation beside it is better. The bound "
          "that this claim had first, at most half a point better at 1x, was not kept."),
    Claim("gau-bias-better", "A learned rotary bias on the logits makes plain rotation better at 8x.",
          "kexue.fm/9577 on arXiv:2202.10447, a guess", gain("gau_bias", "rope"),
          note="In ordinary attention. The source has it in a gated attention unit."),
    Claim("biases-do-nothing", "Without biases in the projections of attention a model is as good at 1x: at most half "
          "a point is lost.", "kexue.fm/9577 on T5 and PaLM", gain("rope", "attention_biases", at=(1,)), -NOTHING,
          "of large models: biases 'have no special effect'", BIASES),
    Claim("biases-extrapolate", "With biases in every projection of attention rotation extrapolates better: accuracy "
          "is higher at 2x, 4x and 8x.", "kexue.fm/9577, a guess", gain("attention_biases", "rope", at=(2, 4, 8)),
          theirs="rotation 'seems' better in papers whose models have biases (KERPLE, Sandwich) than in those whose "
          "models have none (ALiBi, XPos)", note=BIASES),
)  # fmt: skip
