// A line chart: one line a series with its own colour, dash and marker, named at its end.

import { svg } from "./dom.js";

const ROOM = { top: 14, right: 92, bottom: 40, left: 44 };
const APART = 15; // between names at the ends of lines
const SHAPES = {
  circle: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
  square: "M-3.5,-3.5h7v7h-7z",
  diamond: "M0,-5L5,0L0,5L-5,0z",
  triangle: "M0,-5L4.6,3.4L-4.6,3.4z",
  block: "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
  tip: "M0,5L4.6,-3.4L-4.6,-3.4z",
  saltire: "M-4.5,-2.2L-2.2,-4.5L0,-2.3L2.2,-4.5L4.5,-2.2L2.3,0L4.5,2.2L2.2,4.5L0,2.3L-2.2,4.5"
    + "L-4.5,2.2L-2.3,0z",
  frame: "M-4,-4h8v8h-8zM-2,-2v4h4v-4z",
  thin: "M0,-5L3,0L0,5L-3,0z",
  pentagon: "M0,-4.5L4.3,-1.4L2.6,3.6L-2.6,3.6L-4.3,-1.4z",
  hexagon: "M-2.2,-4h4.4l2.2,4l-2.2,4h-4.4l-2.2,-4z",
  plus: "M-4.5,0h9M0,-4.5v9",
  cross: "M-4,-4L4,4M-4,4L4,-4",
};
const STAR = "M0,-9L2.6,-3L9,-2.6L4.2,1.6L5.6,8L0,4.6L-5.6,8L-4.2,1.6L-9,-2.6L-2.6,-3z";

/** Round numbers that divide a range into about `count` parts. */
export function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

function spread(names) {
  const sorted = [...names].sort((a, b) => a.y - b.y);
  for (let i = 1; i < sorted.length; i++) {
    sorted[i].y = Math.max(sorted[i].y, sorted[i - 1].y + APART);
  }
  return sorted;
}

/** A chart of `width` pixels. x, y: { low, high, ticks, label }. series: { name, look, marker,
 * points: [[x, y], ...], apart: a point beside the line, star: the place of a point, or "apart",
 * bounds: [low, high] of each point, null without an interval, apartBounds: the same of apart }.
 * A tick of x is a number, or a number and its name. reference: { y, label }. chosen: an x that is
 * marked; choose(x) is called where the picture is clicked. */
export function lineChart({ width, height, x, y, series, reference, chosen, choose, label }) {
  const right = width - ROOM.right;
  const bottom = height - ROOM.bottom;
  const across = (value) => ROOM.left + ((value - x.low) / (x.high - x.low)) * (right - ROOM.left);
  const up = (value) => bottom - ((value - y.low) / (y.high - y.low)) * (bottom - ROOM.top);
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": label, class: "chart" });
  for (const value of y.ticks) {
    const at = up(value);
    picture.append(
      svg("line", { x1: ROOM.left, x2: right, y1: at, y2: at, class: "grid" }),
      svg("text", { x: ROOM.left - 8, y: at + 4, "text-anchor": "end" }, String(value)));
  }
  for (const tick of x.ticks) {
    const [value, name] = Array.isArray(tick) ? tick : [tick, String(tick)];
    picture.append(
      svg("text", { x: across(value), y: bottom + 18, "text-anchor": "middle" }, name));
  }
  picture.append(
    svg("line", { x1: ROOM.left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
    svg("text", { x: (ROOM.left + right) / 2, y: height - 4, "text-anchor": "middle",
      class: "axis-name" }, x.label));
  if (chosen != null) {
    picture.append(svg("line", { x1: across(chosen), x2: across(chosen), y1: ROOM.top, y2: bottom,
      class: "chosen" }));
  }
  if (reference) {
    const at = up(reference.y);
    picture.append(
      svg("line", { x1: ROOM.left, x2: right, y1: at, y2: at, class: "reference" }),
      svg("text", { x: right + 8, y: at + 4, class: "reference-name" }, reference.label));
  }
  for (const { look, points, bounds, apart, apartBounds } of series) {
    const known = points.flatMap(([a], i) =>
      bounds?.[i] ? [[across(a), ...bounds[i].map(up)]] : []);
    const lower = known.map(([a, low]) => [a, low]);
    const upper = known.map(([a, , high]) => [a, high]).reverse();
    const edge = [...lower, ...upper];
    picture.append(svg("polygon", { points: edge.join(" "), class: `band ${look}` }));
    if (apart && apartBounds) {
      const [low, high] = apartBounds.map(up);
      const at = across(apart[0]);
      picture.append(svg("line", { x1: at, x2: at, y1: low, y2: high, class: `range ${look}` }));
    }
  }
  const names = [];
  for (const { name, look, marker, points, apart, star } of series) {
    const line = points.map(([a, b]) => `${across(a)},${up(b)}`).join(" ");
    const group = svg("g", { class: `series ${look}` }, svg("polyline", { points: line }));
    const markAt = ([a, b], starred) => {
      const scale = a === chosen ? 1.5 : 1;
      const transform = `translate(${across(a)},${up(b)}) scale(${starred ? 1 : scale})`;
      const d = starred ? STAR : SHAPES[marker];
      group.append(svg("path", { d, class: starred ? "star" : `marker ${marker}`, transform }));
    };
    points.forEach((point, i) => markAt(point, i === star));
    if (apart) markAt(apart, star === "apart");
    picture.append(group);
    const last = apart ?? points[points.length - 1];
    names.push({ name, look, y: up(last[1]) });
  }
  if (reference) names.push({ name: null, y: up(reference.y) });
  for (const { name, look, y: at } of spread(names)) {
    if (name === null) continue;
    picture.append(svg("text", { x: right + 8, y: at + 4, class: `series-name ${look}` }, name));
  }
  if (choose) {
    picture.addEventListener("click", (event) => {
      const at = event.clientX - picture.getBoundingClientRect().left;
      const value = x.low + ((at - ROOM.left) / (right - ROOM.left)) * (x.high - x.low);
      choose(Math.round(Math.min(x.high, Math.max(x.low, value))));
    });
  }
  return picture;
}
