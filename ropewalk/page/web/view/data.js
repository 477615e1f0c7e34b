// What is drawn: Python computed it when the page was written, or the server behind the page does when it is asked.
"use strict";
Ropewalk.data = (() => {
  const { drawings, reaches, lengths, model, catalogue, live } = Ropewalk.given;
  const key = (line, length) => `${line}@${length}`;

  // A line at a target length: its drawing, {refused: sentence}, or nothing where the page does not have it.
  function find(line, length) {
    const drawing = drawings[key(line, length)];
    if (!drawing || drawing.refused) return drawing ?? null;
    const grid = lengths.find((one) => one.length === length);
    const reach = { ...reaches[drawing.reach], distances: reaches[drawing.reach].rows.map(distancesOf) };
    return { ...drawing, ...shared(drawing), line, ...grid, reach, ground: drawing.ground ?? model };
  }

  // The curves of a drawing; one that is a text is that of the drawing with this key.
  function shared(drawing) {
    const named = ["pairs", "decay"].filter((name) => typeof drawing[name] === "string");
    return Object.fromEntries(named.map((name) => [name, drawings[drawing[name]][name]]));
  }

  // The distances of a row, written as steps: first column, how many, first distance, step. Keys out of reach are null.
  function distancesOf(steps, row, rows) {
    const distances = Array(rows.length).fill(null);
    for (let at = 0; at < steps.length; at += 4) {
      const [start, count, first, step] = steps.slice(at, at + 4);
      for (let n = 0; n < count; n++) distances[start + n] = first + n * step;
    }
    return distances.slice(0, row + 1);
  }

  // Ask the server behind the page; what it refuses is kept as a refusal, and what fails is not kept.
  async function ask(line, length) {
    const read = await Ropewalk.server.json("api/drawing", { line, length });
    Object.assign(drawings, read.drawings);
    Object.assign(reaches, read.reaches);
  }

  return { find, ask, lengths, model, catalogue, live };
})();
