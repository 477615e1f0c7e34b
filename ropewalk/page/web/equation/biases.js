// bias_h(distance): what is added to a logit. One entry per file of ropewalk/methods/biases/.
// bias(values, distance, query, facts, weights) gives one number per head. Learned numbers come in as `weights`;
// weights(values, facts, random) draws them as they are before training.
"use strict";
Ropewalk.methods.biases = (() => {
  const { must, because, short } = Ropewalk.errors;
  const SMALLEST = 0.01,
    LARGEST_POWER = 2,
    SPREAD = 0.02,
    TINY = 1e-6;
  const list = (count, draw) => Array.from({ length: count }, (_, index) => draw(index));
  const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const geometric = (heads) => list(heads, (h) => 2 ** ((-8 * (h + 1)) / heads));

  // One slope per head: those of the next lower power of two, then every second one of twice as many.
  function slopes(heads) {
    const power = 2 ** Math.floor(Math.log2(heads));
    const between = geometric(2 * power).filter((_, index) => index % 2 === 0);
    return [...geometric(power), ...between.slice(0, heads - power)];
  }

  function bucket({ buckets, max_distance }, distance) {
    const exact = buckets / 2;
    if (distance < exact) return Math.trunc(distance);
    const share = Math.log(Math.max(distance, exact) / exact) / Math.log(max_distance / exact);
    return Math.min(exact + Math.trunc(share * exact), buckets - 1);
  }

  const uniform = (random, fanIn) => (2 * random() - 1) / Math.sqrt(fanIn);

  const nearKeys = (window, trained) => window ?? Math.floor((3 * trained) / 8);

  return {
    alibi: { bias: (_, distance, query, facts) => slopes(facts.heads).map((slope) => -slope * distance) },
    kerple_log: {
      weights: (_, facts, random) => ({ p: list(facts.heads, () => 2 * random()), a: list(facts.heads, random) }),
      bias: (_, distance, query, facts, { p, a }) =>
        p.map((slope, h) => -Math.max(slope, SMALLEST) * Math.log1p(Math.max(a[h], SMALLEST) * distance)),
    },
    kerple_power: {
      weights: (_, facts, random) => ({
        p: list(facts.heads, () => LARGEST_POWER * random()),
        a: list(facts.heads, random),
      }),
      bias: (_, distance, query, facts, { p, a }) =>
        p.map((power, h) => {
          return -Math.max(a[h], SMALLEST) * distance ** Math.min(Math.max(power, SMALLEST), LARGEST_POWER);
        }),
    },
    sandwich: {
      bias({ width, first, base }, distance, query, facts) {
        const waves = list(width / 2, (n) => Math.cos(distance * base ** ((-2 * (first + n)) / width)) - 1);
        const sum = waves.reduce((total, wave) => total + wave, 0);
        return list(facts.heads, (h) => (facts.heads / (8 * (h + 1))) * sum);
      },
    },
    gau_rotary: {
      weights(values, facts, random) {
        const vectors = () => list(facts.heads, () => list(values.width, () => SPREAD * normal(random)));
        return { a: vectors(), b: vectors() };
      },
      bias({ width, base }, distance, query, facts, { a, b }) {
        return a.map((one, h) => {
          let total = 0;
          for (let c = 0; c < width / 2; c++) {
            const angle = distance * base ** ((-2 * c) / width),
              [x, y] = [one[2 * c], one[2 * c + 1]];
            const [u, v] = [b[h][2 * c], b[h][2 * c + 1]];
            total += Math.cos(angle) * (x * u + y * v) + Math.sin(angle) * (x * v - y * u);
          }
          return total;
        });
      },
    },
    t5: {
      check({ buckets, max_distance }) {
        const half = buckets / 2;
        if (max_distance <= half) throw must("max_distance", `above half the buckets (${half})`, max_distance);
      },
      weights: ({ buckets }, facts, random) => ({
        table: list(buckets, () => list(facts.heads, () => SPREAD * normal(random))),
      }),
      bias: (values, distance, query, facts, { table }) => table[bucket(values, distance)],
    },
    far_discount: {
      checkAgainst({ window }, { trained_len }) {
        const near = nearKeys(window, trained_len);
        if (near < 1 || near >= trained_len) {
          throw must("window", `from 1 to below the trained length (${trained_len})`, near);
        }
      },
      checkReached({ window }, furthest, whole, { trained_len }) {
        const near = nearKeys(window, trained_len);
        const hides = "far_discount counts all keys of the text, but the reach hides some of them";
        if (!whole) throw because(hides, { remedy: "leave far_discount out" });
        if (furthest > near - 0.5) return;
        const none = `far_discount begins above a distance of ${short(near - 0.5)}, but no key is further than ${short(furthest)}`;
        throw because(none, { remedy: `write far_discount:window=${Math.trunc(furthest)}` });
      },
      bias({ window, strength }, distance, query, { trained_len, heads }) {
        const near = nearKeys(window, trained_len);
        const times = Math.max((query - near + 1) / (trained_len - near), 1);
        return Array(heads).fill(distance > near - 0.5 ? -strength * Math.log(times) : 0);
      },
    },
    fire: {
      weights: ({ width, initial_c }, facts, random) => ({
        c: initial_c,
        multiplier: 1,
        in_weight: list(width, () => [uniform(random, 1)]),
        in_bias: list(width, () => uniform(random, 1)),
        out_weight: list(facts.heads, () => list(width, () => uniform(random, width))),
        out_bias: list(facts.heads, () => uniform(random, width)),
      }),
      bias({ threshold }, distance, query, facts, learned) {
        const rate = Math.abs(learned.c),
          furthest = Math.max(query, Math.abs(learned.multiplier * threshold));
        const share = Math.log(rate * distance + 1) / (Math.log(rate * furthest + 1) + TINY);
        const hidden = learned.in_bias.map((bias, n) => Math.max(share * learned.in_weight[n][0] + bias, 0));
        return learned.out_weight.map((row, h) => {
          return row.reduce((total, weight, n) => total + weight * hidden[n], learned.out_bias[h]);
        });
      },
    },
  };
})();
