// What the panels draw: ropewalk/measure/diagnostics/pair_angles.py and decay.py, and the scale by row.
"use strict";
Ropewalk.diagnostics = (() => {
  const { theta, reach, atLayer, ground } = Ropewalk.extension;
  const { tableOf } = Ropewalk.frequencies;
  const WIDEST = 512; // of a bias: more would take seconds to draw

  // A generator of numbers from 0 to 1 with a fixed start: learned numbers before training look the same every time.
  function steady(seed = 1) {
    let state = seed;
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  // The learned numbers of every method that has some, as they are before training.
  function initialWeights(extension, facts) {
    const weights = {},
      random = steady();
    for (const spec of [...extension.biases, ...extension.scales]) {
      const draw = Ropewalk.methods[spec.slot][spec.name].weights;
      if (draw) weights[spec.name] = draw(spec.values, facts, random);
    }
    return weights;
  }

  // What a text of a length looks like under an extension: of the first layer if layers differ.
  function view(extension, stated, length) {
    const facts = ground(extension, stated),
      first = atLayer(extension, 0, facts);
    for (const { slot, name, values } of Ropewalk.extension.specs(first)) {
      const size = values.width ?? values.buckets ?? 0;
      if (size > WIDEST) throw Ropewalk.errors.must(`the width of ${name}`, `at most ${WIDEST} on this page`, size);
      if (Ropewalk.methods[slot] && !Ropewalk.methods[slot][name]) {
        throw Ropewalk.errors.because(`this page has no formula for ${slot}.${name}`, {
          remedy: "ropewalk show prints it",
        });
      }
    }
    const spans = Ropewalk.reach.spansOf(reach(first));
    const turns = tableOf(theta(first), facts, 1).invFreq.map((angle) => (facts.trained_len * angle) / (2 * Math.PI));
    return { extension: first, facts, length, spans, turns, weights: initialWeights(first, facts) };
  }

  // Of every pair, fastest first: rotations in training, and in the last row of the text.
  function pairAngles({ extension, facts, length, spans, turns }) {
    const before = Ropewalk.frequencies.trained(facts),
      after = tableOf(theta(extension), facts, length).invFreq;
    const reached = (pair) => (pair < turns.length ? Ropewalk.reach.furthestOfPair(spans, length - 1, turns, pair) : 0) + 1,
      full = 2 * Math.PI;
    return before.map((original, pair) => {
      const angle = after[pair] ?? 0; // a partial rotation leaves the last pairs alone
      const trained = (facts.trained_len * original) / full,
        asked = (reached(pair) * angle) / full;
      const slowedBy = angle ? original / angle : Infinity;
      return { pair, theta: angle, slowedBy, trained, asked, unseen: trained < 1 && asked > trained * (1 + 1e-9) };
    });
  }

  // The factor of the logits of a row, in the first head, where all dimensions rotate.
  const scaleAt = (shown, position) => productAt(shown, position, () => true);

  const ofRotation = ({ values }) => (values.inner ?? { values }).values.over === "rotating";

  // The product of some scales.
  function productAt({ extension, facts, weights }, position, isCounted) {
    return extension.scales.filter(isCounted).reduce((total, spec) => {
      const method = Ropewalk.methods.scales[spec.name];
      return total * method.scale(spec.values, position, facts, weights[spec.name])[0];
    }, 1);
  }

  // g(s) of the last row for one distance, in the first head: the logit of two equal vectors with <x, x> = sqrt(d).
  function decayAt(shown, distance) {
    const { extension, facts, length, spans, turns, weights } = shown,
      row = length - 1;
    const effective = Ropewalk.reach.distance(spans, row, row - distance);
    if (Number.isNaN(effective)) return NaN;
    const { invFreq, logDecay } = (shown.table ??= tableOf(theta(extension), facts, length));
    const warmth = productAt(shown, row, ofRotation);
    let total = facts.head_dim / 2 - invFreq.length; // pairs that do not rotate
    invFreq.forEach((angle, pair) => {
      const place = Ropewalk.reach.distanceOfPair(spans, row, row - distance, turns, pair);
      total += warmth * Math.cos(place * angle) * Math.exp(place * logDecay[pair]);
    });
    const logit = (productAt(shown, row, (spec) => !ofRotation(spec)) * 2 * total) / facts.head_dim;
    return extension.biases.reduce((sum, spec) => {
      const method = Ropewalk.methods.biases[spec.name];
      return sum + method.bias(spec.values, effective, row, facts, weights[spec.name])[0];
    }, logit);
  }

  return { view, pairAngles, scaleAt, decayAt, initialWeights, steady };
})();
