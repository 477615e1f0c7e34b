// What a reader would stumble over on this page: text too pale, no alternative text, no name, wider than the window.
() => {
  const faults = new Set();
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const numbers = (color) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => below.map((value, at) => (at < 3 ? top[at] * top[3] / 255 + value * (1 - top[3] / 255) : 255));
  const ground = (node) => (node ? over(numbers(getComputedStyle(node).backgroundColor), ground(node.parentElement)) : [255, 255, 255, 255]);
  const light = (color) => {
    const [red, green, blue] = color.map((value) => (value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  for (const node of document.body.querySelectorAll("*")) {
    const says = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!says || !node.getBoundingClientRect().width || !node.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(node);
    const below = ground(node);
    const [high, low] = [light(over(numbers(style.color), below)), light(below)].sort((a, b) => b - a);
    const large = parseFloat(style.fontSize) >= 24;
    if ((high + 0.05) / (low + 0.05) < (large ? 3 : 4.5)) faults.add(`pale: ${node.tagName}.${node.className}`);
  }
  for (const image of document.images) if (!image.alt) faults.add(`no alternative text: ${image.src}`);
  for (const control of document.querySelectorAll("a[href], button, input")) {
    const name = control.textContent.trim() || control.getAttribute("aria-label") || control.title || control.querySelector("img[alt]");
    if (!name && control.checkVisibility()) faults.add(`no name: ${control.outerHTML.slice(0, 80)}`);
  }
  if (document.querySelectorAll("h1").length !== 1) faults.add("not one first heading");
  if (!document.title) faults.add("no title");
  const language = location.pathname.includes("/zh/") ? "zh" : "en";
  if (document.documentElement.lang !== language) faults.add(`language is not ${language}`);
  if (document.documentElement.scrollWidth > innerWidth) faults.add(`wider than ${innerWidth}`);
  return [...faults];
}
