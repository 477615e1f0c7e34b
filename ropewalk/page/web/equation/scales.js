// scale(i): the factor of the logits of one query row. One entry per file of ropewalk/methods/scales/.
// scale(values, position, facts, weights) gives one number per head, or one for all heads.
"use strict";
Ropewalk.methods.scales = (() => {
  const { must } = Ropewalk.errors;
  const grown = (coefficient, factor) => 0.1 * coefficient * Math.log(factor) + 1;

  const requireLogarithm = (name, by) => (_, facts) => {
    const rule = `at least 2 for ${name}, which divides by ${by}`;
    if (facts.trained_len < 2) throw must("trained_len", rule, facts.trained_len);
  };

  function requireInner(inner) {
    if (!("factor" in inner.values)) {
      throw must("inner", "a scale with a factor", inner.name, "take yarn_temperature");
    }
    if (inner.values.factor !== 1) {
      throw must("inner", "written with factor=1: every row sets its factor", Ropewalk.record.line(inner));
    }
  }

  // The mean of ln 1, ln 2, ..., ln n.
  function meanLogarithm(n) {
    let total = 0;
    for (let i = 2; i <= n; i++) total += Math.log(i);
    return total / n;
  }

  const methods = {
    log_n: {
      checkAgainst: requireLogarithm("log_n", "its logarithm"),
      scale({ clipped, strength }, position, facts) {
        const growth = Math.log(position + 1) / Math.log(facts.trained_len);
        return [1 + strength * ((clipped ? Math.max(growth, 1) : growth) - 1)];
      },
    },
    temperature: { scale: ({ value }) => [value] },
    yarn_temperature: { scale: ({ factor, coefficient }) => [(coefficient * Math.log(factor) + 1) ** 2] },
    deepseek_temperature: {
      scale: ({ factor, mscale, mscale_all_dim }) => [(grown(mscale, factor) / grown(mscale_all_dim, factor)) ** 2],
    },
    longrope_temperature: {
      checkAgainst: requireLogarithm("longrope_temperature", "ln L"),
      scale: ({ factor }, _, facts) => [1 + Math.log(factor) / Math.log(facts.trained_len)],
    },
    llama4_temperature: {
      scale({ beta, length, first }, position, facts) {
        return [1 + beta * Math.log1p(Math.floor((position + first) / (length ?? facts.trained_len)))];
      },
    },
    head_scale: {
      weights: ({ start }, facts) => ({ lambda: Array(facts.heads).fill(start) }),
      scale: ({ floor }, _, facts, weights) => weights.lambda.map((learned) => Math.max(learned, floor)),
    },
    ssmax: {
      checkAgainst({ start }, facts) {
        const rule = "at least 2 for ssmax, which divides by its logarithms";
        if (start === null && facts.trained_len < 2) throw must("trained_len", rule, facts.trained_len);
      },
      weights: ({ start }, facts) => ({ s: Array(facts.heads).fill(start ?? 1 / meanLogarithm(facts.trained_len)) }),
      scale: (_, position, facts, weights) => weights.s.map((learned) => learned * Math.log1p(position)),
    },
    dynamic: {
      check: ({ inner }) => requireInner(inner),
      checkAgainst: ({ inner }, facts) => methods[inner.name].checkAgainst?.(inner.values, facts),
      scale({ inner, steps }, position, facts, weights) {
        const factor = Ropewalk.facts.stretch(facts, position + 1, steps);
        if (factor === 1) return [1];
        return methods[inner.name].scale({ ...inner.values, factor }, position, facts, weights);
      },
    },
  };
  return methods;
})();
