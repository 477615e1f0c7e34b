// theta: how fast each pair of dimensions is rotated. One entry per file of ropewalk/methods/frequencies/.
// table(values, facts, length) gives, for every pair, radians per position and the logarithm of a decay per position.
"use strict";
Ropewalk.methods.frequencies = (() => {
  const { because, must } = Ropewalk.errors;
  const { rotating, stretch } = Ropewalk.facts;
  const float = (value) => new Ropewalk.Float(value);
  const isMoving = (theta) => theta > 2 ** -62; // less than a radian in any text is a pair that stands still
  const clamp = (value) => Math.min(Math.max(value, 0), 1);

  const pairs = (facts) => Array.from({ length: rotating(facts) / 2 }, (_, pair) => pair);
  const formula = (facts) => pairs(facts).map((pair) => facts.base ** ((-2 * pair) / rotating(facts)));
  const trained = (facts) => facts.inv_freq ?? formula(facts);
  const withoutDecay = (invFreq) => ({ invFreq, logDecay: invFreq.map(() => 0) });
  const slowed = (facts, divisor) => withoutDecay(trained(facts).map((theta, pair) => theta / divisor(pair)));
  const mixed = (facts, keep, factor) =>
    withoutDecay(trained(facts).map((theta, pair) => keep[pair] * theta + ((1 - keep[pair]) * theta) / factor));
  const withBase = ({ new_base }, facts) =>
    slowed(facts, (pair) => (new_base / facts.base) ** ((2 * pair) / rotating(facts)));
  const turns = (facts) => trained(facts).map((theta) => (facts.trained_len * theta) / (2 * Math.PI));
  const tableOf = (spec, facts, length) => methods[spec.name].table(spec.values, facts, length);

  // The real-valued pair with this many rotations in the trained length.
  function indexOf(count, facts) {
    if (facts.inv_freq) return crossing(facts.inv_freq, (2 * Math.PI * count) / facts.trained_len);
    return (rotating(facts) * Math.log(facts.trained_len / (2 * Math.PI * count))) / (2 * Math.log(facts.base));
  }

  // Where a falling table takes a value, along straight lines of its logarithm; the lines at both ends continue.
  function crossing(table, value) {
    const height = [];
    for (const theta of table.filter(isMoving)) {
      height.push(Math.min(Math.log(theta), height.at(-1) ?? Infinity));
    }
    const above = height.filter((one) => one >= Math.log(value)).length;
    const left = Math.min(Math.max(above - 1, 0), Math.max(height.length - 2, 0));
    const fall = height.length > 1 ? height[left] - height[left + 1] : 0;
    return fall ? left + (height[left] - Math.log(value)) / fall : above;
  }

  function keepByIndex(values, facts) {
    let first = indexOf(values.high_turns, facts),
      last = indexOf(values.low_turns, facts);
    if (values.truncate) [first, last] = [Math.floor(first), Math.ceil(last)];
    first = Math.max(first, 0);
    last = Math.max(Math.min(last, rotating(facts) - 1), first);
    if (first === last) last += 0.001;
    return pairs(facts).map((pair) => 1 - clamp((pair - first) / (last - first)));
  }

  const keepByTurns = (values, facts) =>
    turns(facts).map((count) => clamp((count - values.low_turns) / (values.high_turns - values.low_turns)));

  const oneForEach = (name, what) => (values, facts) => {
    const count = rotating(facts) / 2;
    if (values[name].length === count) return;
    throw must(name, `one ${what} for each of the ${count} pairs`, values[name].length);
  };

  function requireInner(inner) {
    if (!("factor" in inner.values)) {
      throw must("inner", "a schedule with a factor", inner.name, "take ntk or by_parts");
    }
    if (inner.values.factor !== 1) {
      throw must("inner", "written with factor=1: every row sets its factor", Ropewalk.record.line(inner));
    }
  }

  // The table that a wrapper changes: its inner schedule's, or the trained one.
  const innerTable = ({ inner }, facts, length) =>
    inner ? tableOf(inner, facts, length) : withoutDecay(trained(facts));

  function checkInner({ inner }, facts) {
    if (inner) methods[inner.name].checkAgainst?.(inner.values, facts);
  }

  const innerFacts = (values, facts) => {
    if (values.over === "head") return facts;
    return { ...facts, rotary_dim: Math.floor(Math.floor(values.share * facts.head_dim) / 2) * 2 };
  };
  const movingPairs = ({ share }, facts) => Math.floor(Math.floor(share * rotating(facts)) / 2);

  function requireAnotherBase({ new_base }, facts) {
    if (new_base === facts.base) throw must("new_base", "another than the model's own base", float(new_base));
  }

  function requireShare(values, facts) {
    let dims = facts.head_dim,
      whole = `a head of ${dims}`;
    if (values.over === "head") [dims, whole] = [rotating(facts), `the ${rotating(facts)} dimensions that rotate`];
    if (Math.floor(values.share * dims) < 2) throw must("share", `at least one pair of ${whole}`, float(values.share));
    if (values.over === "head") requireChange(values, facts);
    else if (facts.inv_freq && rotating(innerFacts(values, facts)) !== rotating(facts)) {
      const rule = `large enough for all ${rotating(facts)} dimensions of the model's own schedule`;
      throw must("share", rule, float(values.share), "+instead replaces that schedule");
    }
    checkInner(values, innerFacts(values, facts));
  }

  // Refuse to stop pairs none of which the model rotates.
  function requireChange(values, facts) {
    const theta = trained(facts),
      stopped = theta.slice(movingPairs(values, facts));
    if (!stopped.length || stopped.some(isMoving)) return;
    const moving = Ropewalk.errors.short(theta.filter(isMoving).length / theta.length);
    throw must("share", `below ${moving}, the share of the pairs that the model rotates`, float(values.share));
  }

  // The pairs that CoPE clips; none that the inner schedule does not rotate.
  function slowPairs(values, theta, facts) {
    const usual = turns(facts);
    if (theta.length !== usual.length) {
      const inner = Ropewalk.record.line(values.inner);
      const sentence = `cope counts the rotations of ${usual.length} pairs, and ${inner} has ${theta.length}`;
      throw because(sentence, { remedy: "write partial around cope, not inside it" });
    }
    const moving = theta.flatMap((one, pair) => (isMoving(one) ? [pair] : []));
    if (values.pairs !== null) return moving.slice(-values.pairs);
    return moving.filter((pair) => usual[pair] < (values.turns ?? 1));
  }

  function requireClipped(values, facts) {
    checkInner(values, facts);
    const theta = innerTable(values, facts, 1).invFreq,
      moving = theta.filter(isMoving).length;
    const count = slowPairs(values, theta, facts).length;
    if (values.pairs !== null && values.pairs > moving) {
      throw must("pairs", `at most ${moving}, the pairs that rotate`, values.pairs);
    }
    if (count < (values.clip === "soft" ? 2 : 1)) {
      const sentence = `cope (${values.clip}) changes nothing where it clips ${count} of ${moving} pairs`;
      throw because(sentence, { remedy: "raise turns or pairs" });
    }
  }

  function clipped(values, table, facts) {
    const slow = slowPairs(values, table.invFreq, facts),
      last = Math.max(slow.length - 1, 1);
    const kept = (place) => (values.clip === "hard" ? 0 : (1 + Math.cos((Math.PI * place) / last)) / 2);
    const invFreq = table.invFreq.map((theta, pair) => (slow.includes(pair) ? theta * kept(slow.indexOf(pair)) : theta));
    return { ...table, invFreq };
  }

  // To the nearest whole number; a half to the even one.
  function rounded(value) {
    const below = Math.floor(value),
      rest = value - below;
    return rest === 0.5 ? below + (below % 2) : below + Number(rest > 0.5);
  }

  const methods = {
    rope: { table: (_, facts) => withoutDecay(trained(facts)) },
    interpolation: { table: ({ factor }, facts) => slowed(facts, () => factor) },
    ntk: {
      checkAgainst(_, facts) {
        if (rotating(facts) <= 2) throw must("rotary_dim", "above 2 for ntk, which divides by d - 2", rotating(facts));
      },
      table: ({ factor }, facts) => slowed(facts, (pair) => factor ** ((2 * pair) / (rotating(facts) - 2))),
    },
    ntk_old: { table: ({ factor }, facts) => slowed(facts, (pair) => factor ** ((2 * pair) / rotating(facts))) },
    ntk_fixed: {
      table: ({ factor }, facts) => slowed(facts, (pair) => factor ** ((pair + 1) / (rotating(facts) / 2))),
    },
    ntk_mixed: {
      table: ({ factor, power }, facts) =>
        slowed(facts, (pair) => Math.exp(Math.log(factor) * ((pair + 1) / (rotating(facts) / 2)) ** power)),
    },
    by_parts: {
      check({ low_turns, high_turns }) {
        const rule = `below high_turns (${Ropewalk.errors.short(high_turns)})`;
        if (low_turns >= high_turns) throw must("low_turns", rule, float(low_turns));
      },
      table(values, facts) {
        const keep = values.ramp === "index" ? keepByIndex(values, facts) : keepByTurns(values, facts);
        if (values.mix === "wavelength") return slowed(facts, (pair) => keep[pair] + (1 - keep[pair]) * values.factor);
        return mixed(facts, keep, values.factor);
      },
    },
    abf: {
      checkAgainst: requireAnotherBase,
      table: withBase,
      stretch: () => Infinity,
    },
    llama3: {
      check({ low_turns, high_turns }) {
        const rule = `at most high_turns (${Ropewalk.errors.short(high_turns)})`;
        if (low_turns > high_turns) throw must("low_turns", rule, float(low_turns));
      },
      table(values, facts) {
        const isStep = values.low_turns === values.high_turns;
        const step = () => turns(facts).map((count) => Number(count > values.low_turns));
        return mixed(facts, isStep ? step() : keepByTurns(values, facts), values.factor);
      },
    },
    by_shares: {
      check({ shares }) {
        if (!shares.length) throw must("shares", "one power per pair", shares);
      },
      checkAgainst: oneForEach("shares", "power"),
      table: ({ factor, shares }, facts) => slowed(facts, (pair) => factor ** shares[pair]),
    },
    longrope: {
      check({ long, short }) {
        if (!long.length) throw must("long", "one divisor per pair", long);
        if (short.length && short.length !== long.length) {
          throw must("short", `as many divisors as long (${long.length})`, short.length);
        }
      },
      checkAgainst: oneForEach("long", "divisor"),
      table({ long, short }, facts, length) {
        if (length > facts.trained_len) return slowed(facts, (pair) => long[pair]);
        return short.length ? slowed(facts, (pair) => short[pair]) : withoutDecay(trained(facts));
      },
      stretch: () => Infinity,
    },
    xpos: {
      checkAgainst: requireAnotherBase,
      table({ scale_base, gamma, new_base }, facts) {
        const zeta = pairs(facts).map((pair) => ((2 * pair) / rotating(facts) + gamma) / (1 + gamma));
        const { invFreq } = withBase({ new_base: new_base ?? facts.base }, facts);
        return { invFreq, logDecay: zeta.map((share) => Math.log(share) / scale_base) };
      },
    },
    partial: {
      checkAgainst: requireShare,
      table(values, facts, length) {
        const table = innerTable(values, innerFacts(values, facts), length);
        if (values.over === "rotating") return table;
        const kept = (column) => column.map((value, pair) => (pair < movingPairs(values, facts) ? value : 0));
        return { invFreq: kept(table.invFreq), logDecay: kept(table.logDecay) };
      },
      wraps: true,
    },
    cope: {
      check({ turns: count, pairs: number }) {
        if (count === null || number === null) return;
        const sentence = `turns=${Ropewalk.errors.short(count)} and pairs=${number} both say how many pairs are clipped`;
        throw because(sentence, { remedy: "state one of them" });
      },
      checkAgainst: requireClipped,
      table: (values, facts, length) => clipped(values, innerTable(values, facts, length), facts),
      wraps: true,
    },
    resonance: {
      checkAgainst: checkInner,
      table(values, facts, length) {
        const table = innerTable(values, facts, length);
        const resonant = (theta) => theta && (2 * Math.PI) / rounded((2 * Math.PI) / theta);
        return { ...table, invFreq: table.invFreq.map(resonant) };
      },
      wraps: true,
    },
    none: { table: (_, facts) => withoutDecay(trained(facts).map(() => 0)), stretch: () => Infinity },
    dynamic: {
      check: ({ inner }) => requireInner(inner),
      checkAgainst: checkInner,
      table({ inner, steps }, facts, length) {
        const factor = stretch(facts, length, steps);
        if (factor === 1) return withoutDecay(trained(facts));
        return methods[inner.name].table({ ...inner.values, factor }, facts, length);
      },
      stretch: () => Infinity,
    },
  };

  // How many trained lengths a schedule covers.
  function stretchOf(spec) {
    const method = methods[spec.name];
    if (method.stretch) return method.stretch(spec.values);
    return spec.values.inner ? stretchOf(spec.values.inner) : (spec.values.factor ?? 1);
  }

  // What all wrappers are around, and the wrappers from the inside out, each left open.
  function layered(spec) {
    if (!spec || !methods[spec.name].wraps) return { core: spec, wrappers: [] };
    const { core, wrappers } = layered(spec.values.inner);
    return { core, wrappers: [...wrappers, around(null, spec)] };
  }

  const around = (inner, wrapper) => ({ ...wrapper, values: { ...wrapper.values, inner } });
  const wrapped = (core, wrappers) => wrappers.reduce(around, core);

  // A schedule in the place of the one below; wrappers that are open go around that one.
  function wrappedOver(spec, below) {
    const { core, wrappers } = layered(spec);
    return core ? spec : wrapped(below, wrappers);
  }

  Ropewalk.frequencies = { tableOf, stretchOf, trained, formula, layered, wrapped, wrappedOver };
  return methods;
})();
