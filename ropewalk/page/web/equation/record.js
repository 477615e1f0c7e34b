// Methods as records, checked as ropewalk/methods/record.py and ropewalk/methods/spec.py check them, by the list that Python wrote.
"use strict";
Ropewalk.record = (() => {
  const { because, must, unknown, fraction } = Ropewalk.errors;
  const WRONG = Symbol("wrong"),
    LARGEST = 2 ** 62;
  // What each rule of the list means; its words come from Python.
  const RULES = {
    "above 0": (value) => value > 0,
    "at least 0": (value) => value >= 0,
    "at least 1": (value) => value >= 1,
    "above 1": (value) => value > 1,
    "above 0 and at most 1": (value) => value > 0 && value <= 1,
    "a positive even number": (value) => value > 0 && value % 2 === 0,
    "from 1 to 16,777,216": (value) => value >= 1 && value <= 2 ** 24,
  };

  // Which list of methods belongs to a slot; an unknown name is an error.
  function entry(slot, name) {
    const methods = Ropewalk.catalogue.slots[slot].methods;
    const method = methods.find((candidate) => candidate.name === name);
    if (!method)
      throw unknown(
        "method",
        name,
        methods.map((candidate) => candidate.name),
        slot,
      );
    return method;
  }

  function requireParameters(method, names) {
    const known = method.parameters.map((parameter) => parameter.name);
    for (const name of names) if (!known.includes(name)) throw unknown("parameter", name, known, method.name);
  }

  // A method with all its values, from values as the notation has them: {slot, name, values}.
  function build(slot, name, given) {
    const method = entry(slot, name);
    requireParameters(method, Object.keys(given));
    for (const { name: key, required } of method.parameters) {
      if (required && given[key] === undefined) {
        throw because(`${name} needs ${key}`, { remedy: `write ${name}:${key}=...` });
      }
    }
    const values = {};
    for (const parameter of method.parameters) {
      const stated = given[parameter.name];
      values[parameter.name] = stated === undefined ? parameter.default : checked(parameter, stated);
    }
    const spec = { slot, name, values };
    Ropewalk.methods[slot]?.[name]?.check?.(spec.values);
    return spec;
  }

  // Refuse a value that is not of the declared type; the value in that type.
  function typed(parameter, stated) {
    const value = convert(parameter.type, stated);
    if (value === WRONG) throw must(parameter.name, parameter.kind, stated);
    return value;
  }

  function checked(parameter, stated) {
    const value = typed(parameter, stated);
    const holds = RULES[parameter.rule];
    if (holds && value !== null && ![value].flat().every(holds)) throw must(parameter.name, parameter.rule, stated);
    return value;
  }

  // A value in its declared type, or WRONG. A bool is no number, a NaN is no value.
  function convert(type, value) {
    if (type.choices) return type.choices.includes(value) ? value : WRONG;
    if (type.any)
      return type.any.map((one) => convert(one, value)).find((one) => one !== WRONG) ?? missing(type, value);
    if (type.list) return Array.isArray(value) ? items(type.list, value) : WRONG;
    if (type.method) return value?.slot === type.method ? value : WRONG;
    if (type.name === "nothing") return value === null ? null : WRONG;
    if (type.name === "bool") return typeof value === "boolean" ? value : WRONG;
    return convertNumber(type.name, value);
  }

  // `find` cannot tell a null that it found from nothing found.
  function missing(type, value) {
    return value === null && type.any.some((one) => one.name === "nothing") ? null : WRONG;
  }

  function items(type, value) {
    const read = value.map((item) => convert(type, item));
    return read.includes(WRONG) ? WRONG : read;
  }

  function convertNumber(kind, value) {
    const written = value instanceof Ropewalk.Float;
    if (!written && typeof value !== "number" && typeof value !== "bigint") return WRONG;
    const number = Number(written ? value.value : value);
    if (!(number >= -LARGEST && number <= LARGEST)) return WRONG;
    return kind === "int" && written ? WRONG : number;
  }

  // The one-line form: the name and every value that is not the default.
  function line(spec) {
    const changed = entry(spec.slot, spec.name).parameters.filter((parameter) => {
      return parameter.required || !same(spec.values[parameter.name], parameter.default);
    });
    const values = changed.map((parameter) => `${parameter.name}=${written(spec.values[parameter.name])}`);
    return values.length ? `${spec.name}:${values.join(",")}` : spec.name;
  }

  // A method and all that it contains, from the outside in.
  function withInner(spec) {
    return spec ? [spec, ...Object.values(spec.values).flatMap((value) => (value?.slot ? withInner(value) : []))] : [];
  }

  function written(value) {
    if (value === null) return "nothing";
    if (Array.isArray(value)) return `[${value.map(written).join(",")}]`;
    if (typeof value === "object") return `(${line(value)})`;
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : fraction(value);
  }

  function same(one, other) {
    return JSON.stringify(one) === JSON.stringify(other);
  }

  return { typed, build, entry, requireParameters, line, same, withInner, RULES };
})();
Ropewalk.methods = {}; // by slot, then by name: the formulas
