// One or several methods, one slot per factor: ropewalk/extension/extension.py and ropewalk/extension/parsing.py.
"use strict";
Ropewalk.extension = (() => {
  const { because, must, unknown, closest, shown } = Ropewalk.errors;
  const { line, same } = Ropewalk.record;
  const WORDS = { frequencies: "schedules", reach: "reaches", positions: "numberings", decoding: "decoding methods" };
  const INSTEAD = "instead",
    LONG = 8, // trained lengths: a text in which reaches show what they do
    CONTEXT = ["trained_len", "target_len", "layers"];
  const slots = () => Object.keys(Ropewalk.catalogue.slots);
  const several = (slot) => Ropewalk.catalogue.slots[slot].several;
  const methodNames = (slot) => Ropewalk.catalogue.slots[slot].methods.map((method) => method.name);

  // An extension with these slots filled; a slot holds one method, or a list where several are allowed.
  function make(filled) {
    const extension = { layers: new Map(), instead: false };
    for (const slot of slots()) extension[slot] = filled[slot] ?? (several(slot) ? [] : null);
    return { ...extension, ...(filled.layers && { layers: filled.layers }), ...(filled.instead && { instead: true }) };
  }

  // Both together. A slot for one method may be filled once.
  function add(one, other) {
    const merged = {};
    for (const slot of slots()) {
      const [mine, theirs] = [one[slot], other[slot]];
      if (several(slot)) merged[slot] = united(slot, mine, theirs);
      else merged[slot] = slot === "frequencies" ? together(mine, theirs) : oneOf(slot, mine, theirs);
    }
    const layers = mergedLayers(one.layers, other.layers);
    return make({ ...merged, layers, instead: one.instead || other.instead });
  }

  // The content of a slot for one method, of which both may have the same.
  function oneOf(slot, mine, theirs) {
    if (mine && theirs && !same(mine, theirs)) {
      throw because(`${line(mine)} and ${line(theirs)} are both ${WORDS[slot]}`, { remedy: "keep one" });
    }
    return mine ?? theirs;
  }

  // The wrappers of both, the later around the earlier, around the schedule that one has.
  function together(mine, theirs) {
    if (!mine || !theirs || same(mine, theirs)) return mine ?? theirs;
    const [first, second] = [mine, theirs].map(Ropewalk.frequencies.layered);
    const twice = first.wrappers.find(({ name }) => second.wrappers.some((wrapper) => wrapper.name === name));
    if (twice) {
      const sentence = `${line(mine)} and ${line(theirs)} both have ${twice.name}`;
      throw because(sentence, { remedy: `name ${twice.name} once` });
    }
    const core = oneOf("frequencies", first.core, second.core);
    return Ropewalk.frequencies.wrapped(core, [...first.wrappers, ...second.wrappers]);
  }

  function united(slot, mine, theirs) {
    const all = [...mine, ...theirs.filter((spec) => !mine.some((known) => same(known, spec)))];
    const names = all.map((spec) => spec.name);
    if (new Set(names).size < names.length) {
      const listed = `[${names.map(shown).join(", ")}]`;
      throw because(`${slot} must be different methods, got ${listed}`, { remedy: "name each once" });
    }
    return all;
  }

  function mergedLayers(mine, theirs) {
    const both = [...mine.keys()].filter((key) => theirs.has(key) && !same(mine.get(key), theirs.get(key)));
    if (both.length) throw because(`both have layers [${both.join(", ")}]`, { remedy: "keep one extension per layer" });
    return new Map([...mine, ...theirs]);
  }

  const theta = (extension) => extension.frequencies ?? { slot: "frequencies", name: "rope", values: {} };
  const reach = (extension) => extension.reach ?? { slot: "reach", name: "causal", values: {} };
  const ground = (extension, facts) => (extension.instead ? Ropewalk.facts.undone(facts) : facts);

  function specs(extension) {
    return slots().flatMap((slot) => [extension[slot] ?? []].flat());
  }

  // What is in force in one layer: a layer's filled slots override those of the whole.
  function atLayer(extension, layer, facts) {
    for (const [key, override] of extension.layers) {
      if (((key % facts.layers) + facts.layers) % facts.layers === layer) return overridden(extension, override);
    }
    return { ...extension, layers: new Map() };
  }

  function overridden(extension, override) {
    const stated = {};
    for (const slot of slots()) {
      const content = override[slot];
      if (several(slot) ? content.length : content) stated[slot] = content;
    }
    if (stated.frequencies) {
      stated.frequencies = Ropewalk.frequencies.wrappedOver(stated.frequencies, extension.frequencies);
    }
    return { ...extension, ...stated, layers: new Map() };
  }

  // Refuse a model that an extension does not fit.
  function checkAgainst(extension, stated) {
    const facts = ground(extension, stated);
    for (const [key, override] of extension.layers) {
      if (!(key >= -facts.layers && key < facts.layers)) {
        const rule = `one of the model's ${facts.layers}, from ${-facts.layers} to ${facts.layers - 1}`;
        throw must("layer", rule, key);
      }
      checkAgainst(overridden(extension, override), facts);
    }
    const check = (spec, known) => Ropewalk.methods[spec.slot]?.[spec.name]?.checkAgainst?.(spec.values, known);
    check(theta(extension), facts);
    const stretch = Ropewalk.frequencies.stretchOf(theta(extension));
    const familiar = { ...facts, trained_len: Math.trunc(Math.min(facts.trained_len * stretch, 2 ** 62)) };
    for (const spec of specs(extension)) check(spec, spec.slot === "reach" ? familiar : facts);
    const spans = Ropewalk.reach.spansOf(reach(extension)),
      row = Math.min(LONG * facts.trained_len, 2 ** 62);
    for (const { name, values } of extension.biases) {
      const { checkReached } = Ropewalk.methods.biases[name];
      checkReached?.(values, Ropewalk.reach.furthest(spans, row), Ropewalk.reach.seesAll(spans, row), facts);
    }
  }

  // The extension that a line names, for a model.
  function parse(text, facts, targetLen) {
    const terms = Ropewalk.notation.read(text);
    terms.forEach(requireKnown);
    const instead = terms.some((term) => term.name === INSTEAD);
    const trained = instead ? (facts.original_len ?? facts.trained_len) : facts.trained_len;
    const context = { trained_len: trained, target_len: targetLen, layers: facts.layers };
    return terms.map((term) => built(term, context)).reduce(add);
  }

  function requireKnown({ name, values }) {
    let accepted = [];
    if (Ropewalk.presets[name]) accepted = preset(name).parameters.map((parameter) => parameter.name);
    else if (name !== INSTEAD) return requireMethod(...slotAndName(name), values);
    for (const key of values.keys()) if (!accepted.includes(key)) throw unknownParameter(name, key, accepted);
  }

  function requireMethod(slot, name, values) {
    const short = name.startsWith(`${slot}.`) ? name.slice(slot.length + 1) : name;
    Ropewalk.record.requireParameters(Ropewalk.record.entry(slot, short), values.keys());
    for (const value of values.values()) {
      if (value instanceof Ropewalk.notation.Term) requireMethod(slot, value.name, value.values);
    }
  }

  function unknownParameter(owner, name, accepted) {
    const [slot] = slots().filter((candidate) => methodNames(candidate).includes(owner));
    return unknown("parameter", name, accepted, owner, slot ? `the method alone is ${slot}.${owner}:...` : "");
  }

  const preset = (name) => Ropewalk.catalogue.presets.find((candidate) => candidate.name === name);

  function slotAndName(name) {
    const dot = name.indexOf(".");
    if (dot >= 0) {
      const slot = name.slice(0, dot);
      if (!slots().includes(slot)) throw unknown("slot", slot, slots(), "the equation");
      return [slot, name.slice(dot + 1)];
    }
    const having = slots().filter((slot) => methodNames(slot).includes(name));
    if (having.length > 1) {
      throw because(`${name} is the name of several methods`, { known: having.map((slot) => `${slot}.${name}`) });
    }
    if (!having.length) throw unknownName(name);
    return [having[0], name];
  }

  function unknownName(name) {
    const methods = slots().flatMap((slot) => methodNames(slot).map((method) => `${slot}.${method}`));
    const known = [...Ropewalk.catalogue.presets.map((candidate) => candidate.name), ...methods, INSTEAD];
    const close = closest(name, known);
    if (!close.length) return unknown("preset or method", name, known);
    return because(`there is no preset or method ${shown(name)}; did you mean ${close.map(shown).join(" or ")}?`);
  }

  function built(term, context) {
    if (term.name === INSTEAD) return make({ instead: true });
    if (Ropewalk.presets[term.name]) return fromPreset(term, context);
    const [slot, name] = slotAndName(term.name);
    const spec = specOf(slot, name, term.values);
    return make({ [slot]: several(slot) ? [spec] : spec });
  }

  // The method, its nested methods taken from the same slot.
  function specOf(slot, name, values) {
    const short = name.startsWith(`${slot}.`) ? name.slice(slot.length + 1) : name;
    const read = [...values].map(([key, value]) => {
      return [key, value instanceof Ropewalk.notation.Term ? specOf(slot, value.name, value.values) : value];
    });
    return Ropewalk.record.build(slot, short, Object.fromEntries(read));
  }

  function fromPreset({ name, values }, context) {
    const parameters = preset(name).parameters,
      filled = {};
    for (const { name: key, default: value } of parameters) if (value !== undefined) filled[key] = value;
    for (const key of CONTEXT) {
      const stated = values.get(key),
        known = context[key];
      requireWhole(key, stated);
      if ((stated ?? null) !== null && (known ?? null) !== null && stated !== known) {
        const sentence = `${name}:${key} is ${stated}, but the model or the call says ${known}`;
        throw because(sentence, { remedy: `leave ${key} out` });
      }
      const accepted = parameters.some((parameter) => parameter.name === key);
      if (accepted && (known ?? null) !== null) filled[key] = known;
    }
    for (const [key, value] of values) {
      filled[key] = value;
      Ropewalk.record.typed(
        parameters.find((parameter) => parameter.name === key),
        value,
      );
    }
    return Ropewalk.presets[name](filled);
  }

  function requireWhole(name, value) {
    if ((value ?? null) === null) return;
    if (!Number.isInteger(value) || value < 1) throw must(name, "a whole number, at least 1", value);
  }

  return { make, add, parse, checkAgainst, atLayer, theta, reach, ground, specs, requireWhole };
})();
