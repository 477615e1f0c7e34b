"use strict";
// Everything here adds to a page that can be read without it: one method alone, values under the pointer, sorted tables.
const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
let pinned = null;

// One method alone: the others fade in every figure of the page.
function isolate(series) {
  const shown = series?.split(" ")[0] ?? pinned;  // of a line that several share, the first
  root.classList.toggle("isolating", shown !== null);
  for (const part of all("[data-series]")) part.classList.toggle("chosen", part.dataset.series.split(" ").includes(shown));
}

function pin(series) {
  const [first] = series.split(" ");
  pinned = pinned === first ? null : first;
  for (const button of all(".pick")) button.setAttribute("aria-pressed", String(button.closest("tr").dataset.series === pinned));
  isolate(null);
}

for (const part of all("[data-series]")) {
  part.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && isolate(part.dataset.series));
  part.addEventListener("pointerleave", () => isolate(null));
}
for (const series of all(".figure [data-series]")) series.addEventListener("click", () => pin(series.dataset.series));
for (const button of all(".pick")) {
  button.addEventListener("click", () => pin(button.closest("tr").dataset.series));
  button.addEventListener("focus", () => isolate(button.closest("tr").dataset.series));
  button.addEventListener("blur", () => isolate(null));
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && pinned !== null) pin(pinned);
});

// Values of a line chart at the place of the pointer, written where the labels are.
function prepared(svg) {
  const lines = svg.querySelector(".lines");
  const [left, , right] = lines.dataset.plot.split(" ").map(Number);
  const series = all(".series", lines).map((group) => {
    const value = group.querySelector(".value");
    return { group, value, points: JSON.parse(group.dataset.points), usual: value.textContent };
  });
  const places = [...new Map(series.flatMap((one) => one.points.map((point) => [point[0], point[1]])))].sort((a, b) => a[0] - b[0]);
  return { svg, left, right, series, places, at: places.length - 1 };
}

const nearest = (list, x) => list.reduce((best, one) => (Math.abs(one[0] - x) < Math.abs(best[0] - x) ? one : best));

function point(chart, x) {
  if (!chart.places.length) return;
  const [place, number] = nearest(chart.places, x);
  const cursor = chart.svg.querySelector(".cursor"), words = cursor.querySelector("text");
  cursor.style.visibility = "visible";
  cursor.setAttribute("transform", `translate(${place} 0)`);
  words.textContent = number.toLocaleString("en");
  chart.at = chart.places.findIndex((one) => one[0] === place);
  for (const one of chart.series) if (one.points.length) one.value.textContent = nearest(one.points, place)[2];
}

function leave(chart) {
  chart.svg.querySelector(".cursor").style.visibility = "";
  for (const one of chart.series) one.value.textContent = one.usual;
}

function across(svg, event) {
  const box = svg.getBoundingClientRect();
  return ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
}

for (const svg of all('svg[data-kind="lines"]')) {
  const chart = prepared(svg);
  svg.addEventListener("pointermove", (event) => {
    const x = across(svg, event);
    if (x > chart.left - 8 && x < chart.right + 8) point(chart, x);
    else leave(chart);
  });
  svg.addEventListener("pointerleave", () => leave(chart));
  svg.addEventListener("blur", () => { leave(chart); isolate(null); });
  let chosen = -1;
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || !chart.places.length) return;
    event.preventDefault();
    if (step[1]) chosen = (chosen + step[1] + chart.series.length) % chart.series.length;
    if (chosen >= 0) isolate(chart.series[chosen].group.dataset.series);
    chart.at = Math.min(Math.max(chart.at + step[0], 0), chart.places.length - 1);
    point(chart, chart.places[chart.at][0]);
  });
}

// The number of a map under the pointer.
for (const svg of all('svg[data-kind="fields"]')) {
  const readings = all(".reading", svg);
  all(".field", svg).forEach((field, index) => readable(svg, field, readings[index]));
}

function readable(svg, field, reading) {
  const [left, top, right, bottom] = field.dataset.box.split(" ").map(Number);
  const edges = JSON.parse(field.dataset.edges), at = JSON.parse(field.dataset.at), values = JSON.parse(field.dataset.values);
  field.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    if (x < left || x > right || y < top || y > bottom) return;
    const layer = Math.min(Math.floor(((y - top) / (bottom - top)) * values.length), values.length - 1);
    const column = Math.max(edges.findLastIndex((edge) => edge <= x), 0), place = Math.min(column, at.length - 1);
    reading.textContent = `layer ${layer}, ${at[place].toLocaleString("en")}: ${values[layer][place] ?? "-"}`;
  });
  field.addEventListener("pointerleave", () => { reading.textContent = ""; });
}

// Tables sort by any column: numbers from the lowest first, then the other way round; what has no number comes last.
function sort(head) {
  const table = head.closest("table"), column = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of all("thead th", table)) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.children[column].dataset.key ?? "";
  const rows = all("tbody tr", table), numeric = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
  const compare = (a, b) => (numeric ? Number(a) - Number(b) : a.localeCompare(b, "en")) * (down ? -1 : 1);
  rows.sort((a, b) => (key(a) === "") - (key(b) === "") || compare(key(a), key(b)));
  table.tBodies[0].append(...rows);
}
for (const button of all(".sort")) button.addEventListener("click", () => sort(button.closest("th")));

// Print everything, folded or not.
addEventListener("beforeprint", () => { for (const fold of all("details:not([open])")) { fold.open = true; fold.dataset.folded = ""; } });
addEventListener("afterprint", () => { for (const fold of all("[data-folded]")) { fold.open = false; delete fold.dataset.folded; } });
root.classList.add("alive");
