// Elements and small charts, drawn without any library and without markup from data.

const SPACE = "http://www.w3.org/2000/svg";

/** Return an element; null children are left out, text goes in as text. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SPACE, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(key, String(value));
  }
  node.append(...children.filter((child) => child !== null).map((child) => child ?? ""));
  return node;
}

/** Return a bar that is filled so far, 0 to 1, with a word for readers who do not see it. */
export function bar(share, label, kind = "") {
  const fill = el("i", { class: kind });
  fill.style.width = `${(100 * Math.min(1, Math.max(0, share || 0))).toFixed(1)}%`;
  return el("div", { class: "bar", role: "img", "aria-label": label }, fill);
}

/** Return one bar of several parts: [[count, kind], ...]. */
export function stack(parts, total, label) {
  const fills = parts.map(([count, kind]) => {
    const fill = el("i", { class: kind });
    fill.style.width = `${total > 0 ? (100 * count) / total : 0}%`;
    return fill;
  });
  return el("div", { class: "stack", role: "img", "aria-label": label }, ...fills);
}

const WIDE = 360;
const HIGH = 130;
const EDGE = { left: 54, right: 8, top: 10, bottom: 20 };

function frame(low, high, first, last, label, format) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label });
  const foot = HIGH - EDGE.bottom;
  picture.append(
    svg("line", { class: "axis", x1: EDGE.left, x2: WIDE - EDGE.right, y1: foot, y2: foot }),
    svg("line", { class: "axis", x1: EDGE.left, x2: WIDE - EDGE.right, y1: EDGE.top, y2: EDGE.top }),
    svg("text", { x: EDGE.left - 6, y: EDGE.top + 4, "text-anchor": "end" }, format(high)),
    svg("text", { x: EDGE.left - 6, y: foot + 4, "text-anchor": "end" }, format(low)),
    svg("text", { x: EDGE.left, y: HIGH - 5 }, String(first)),
    svg("text", { x: WIDE - EDGE.right, y: HIGH - 5, "text-anchor": "end" }, String(last)),
  );
  return picture;
}

/** Return a line through points [[x, y], ...], which are in order. */
export function lineChart(points, { label, format, floor = null, ceiling = null }) {
  const values = points.map(([, y]) => y);
  const low = floor ?? Math.min(...values);
  let high = ceiling ?? Math.max(...values);
  if (high <= low) high = low + 1;
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const x = (at) => EDGE.left + ((WIDE - EDGE.left - EDGE.right) * (at - first)) / Math.max(1, last - first);
  const y = (value) => HIGH - EDGE.bottom - ((HIGH - EDGE.top - EDGE.bottom) * (value - low)) / (high - low);
  const picture = frame(low, high, `round ${first}`, `round ${last}`, label, format);
  const path = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const foot = HIGH - EDGE.bottom;
  picture.append(
    svg("polygon", { class: "area", points: `${x(first)},${foot} ${path} ${x(last)},${foot}` }),
    svg("polyline", { class: "line", points: path }),
  );
  const marked = points.length <= 60 ? points : points.slice(-1);
  for (const [at, value] of marked) {
    const title = svg("title", {}, `round ${at}: ${format(value)}`);
    picture.append(svg("circle", { class: "dot", cx: x(at), cy: y(value), r: 3 }, title));
  }
  return picture;
}

/** Return upright bars: [{parts: [[value, kind], ...], title}, ...]. */
export function barChart(bars, { label, format, first, last }) {
  const sums = bars.map((one) => one.parts.reduce((sum, [value]) => sum + value, 0));
  const high = Math.max(...sums) || 1;
  const picture = frame(0, high, first, last, label, format);
  const room = (WIDE - EDGE.left - EDGE.right) / Math.max(bars.length, 12);
  bars.forEach((one, index) => {
    const group = svg("g", {}, svg("title", {}, one.title));
    let foot = HIGH - EDGE.bottom;
    for (const [value, kind] of one.parts) {
      const size = ((HIGH - EDGE.top - EDGE.bottom) * value) / high;
      foot -= size;
      const width = Math.max(1, room * 0.72);
      const left = EDGE.left + index * room + (room - width) / 2;
      group.append(svg("rect", { class: kind, x: left.toFixed(1), y: foot.toFixed(1), width: width.toFixed(1), height: Math.max(size, value > 0 ? 1 : 0).toFixed(1), rx: 1.5 }));
    }
    picture.append(group);
  });
  return picture;
}
