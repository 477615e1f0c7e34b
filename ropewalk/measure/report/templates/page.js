// What a reader can do with the whole page: show one method alone, sort tables, print everything.
const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
let pinned = null;

// One method alone: the others fade in every figure of the page.
function isolate(series) {
  const shown = series?.split(" ")[0] ?? pinned;  // of a line that several share, the first
  root.classList.toggle("isolating", shown !== null);
  for (const part of all("[data-series]")) part.classList.toggle("chosen", part.dataset.series.split(" ").includes(shown));
  charts.fade(shown);
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
for (const series of all("figure [data-series]")) series.addEventListener("click", () => pin(series.dataset.series));
for (const button of all(".pick")) {
  button.addEventListener("click", () => pin(button.closest("tr").dataset.series));
  button.addEventListener("focus", () => isolate(button.closest("tr").dataset.series));
  button.addEventListener("blur", () => isolate(null));
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && pinned !== null) pin(pinned);
});

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
