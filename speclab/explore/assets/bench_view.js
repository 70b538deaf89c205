// Two distributions over five words: what is kept, what is rejected, and what the output is.

import { byId, el, fixed, listed, put, share, svg } from "./dom.js";
import { blockEfficiency, emitted, normalised, overlap, residual, split } from "./rule.js";

export const WORDS = ["the", "cat", "dog", "sat", "."];
export const BENCH = { p: [0, 50, 35, 5, 10], q: [5, 30, 55, 5, 5] }; // notebook 00, after "the"

/** The sliders: written once, so that one that is dragged stays under the finger. */
export function writeBench(act, bench) {
  const rows = WORDS.map((word, place) => el("tr", null,
    el("th", { scope: "row" }, el("code", null, word)),
    ["p", "q"].map((name) => el("td", null,
      el("span", { class: "slide" },
        el("input", {
          type: "range", min: 0, max: 100, step: 1, value: bench[name][place],
          "aria-label": `${name} of ${word}`, "data-weight": `${name}${place}`,
          oninput: (event) => act.weigh(name, place, Number(event.target.value)),
        }),
        el("output", { id: `share-${name}${place}` }))))));
  const head = ["word", "p, target", "q, draft"];
  put("bench-sliders", el("table", null,
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows)));
}

const ROOM = { top: 30, bottom: 26, left: 30, right: 8, height: 210 };

/** One panel: bars of stacked parts, and a line at p. parts: [class, values] from below. */
export function panel(width, title, parts, line, high, names = WORDS) {
  const bottom = ROOM.height - ROOM.bottom;
  const up = (value) => bottom - (value / high) * (bottom - ROOM.top);
  const apart = (width - ROOM.left - ROOM.right) / names.length;
  const picture = svg("svg", { width, height: ROOM.height, viewBox: `0 0 ${width} ${ROOM.height}`,
    role: "img", "aria-label": title });
  picture.append(svg("text", { x: 0, y: 14, class: "panel-name" }, title));
  for (let value = 0; value <= high + 1e-9; value += high > 0.6 ? 0.2 : 0.1) {
    picture.append(
      svg("line", { x1: ROOM.left, x2: width - ROOM.right, y1: up(value), y2: up(value),
        class: "grid" }),
      svg("text", { x: ROOM.left - 6, y: up(value) + 4, "text-anchor": "end" }, fixed(value, 1)));
  }
  names.forEach((word, i) => {
    const x = ROOM.left + i * apart + apart * 0.18;
    let below = 0;
    for (const [kind, values] of parts) {
      if (values[i] <= 0) continue;
      picture.append(svg("rect", { x, width: apart * 0.64, y: up(below + values[i]),
        height: up(below) - up(below + values[i]), class: `stack ${kind}` }));
      below += values[i];
    }
    if (line) {
      picture.append(svg("line", { x1: x - 4, x2: x + apart * 0.64 + 4, y1: up(line[i]),
        y2: up(line[i]), class: "wanted" }));
    }
    picture.append(svg("text", { x: x + apart * 0.32, y: ROOM.height - 8, "text-anchor": "middle",
      class: "word" }, word));
  });
  return picture;
}

function sentence(p, q, gamma) {
  const alpha = overlap(p, q);
  const left = residual(p, q);
  const lacking = WORDS.filter((_, i) => p[i] - q[i] > 1e-9);
  const kept = `The target keeps the draft's word with probability ${fixed(alpha)}, the overlap.`;
  if (!lacking.length) {
    return `${kept} p and q are the same, so no word is ever rejected.`;
  }
  const drawn = lacking.map((word) => `“${word}” (${share(left[WORDS.indexOf(word)])})`);
  const tokens = fixed(blockEfficiency(alpha, gamma));
  return `${kept} After a rejection the residual gives ${listed(drawn)}. Kept and recovered words `
    + `together follow p exactly. If every word had this overlap, gamma ${gamma} would yield `
    + `${tokens} tokens per target pass.`;
}

export function drawBench(bench, gamma) {
  const p = normalised(bench.p);
  const q = normalised(bench.q);
  for (const [name, values, weights] of [["p", p, bench.p], ["q", q, bench.q]]) {
    values.forEach((value, i) => {
      byId(`share-${name}${i}`).textContent = fixed(value);
      document.querySelector(`[data-weight="${name}${i}"]`).value = weights[i];
    });
  }
  const { kept, rejected } = split(p, q);
  const left = residual(p, q);
  const out = emitted(p, q);
  const often = 1 - overlap(p, q);
  const recovered = out.map((value, i) => value - kept[i]);
  const high = Math.min(1, Math.ceil(Math.max(...p, ...q, ...left) * 5 + 0.2) / 5);
  const whole = byId("bench-picture").clientWidth;
  const three = whole > 640;
  const width = three ? Math.floor((whole - 32) / 3) : whole;
  put("bench-words", sentence(p, q, gamma));
  put("bench-picture",
    panel(width, "1. Draw from q, keep with min(1, p/q)",
      [["kept", kept], ["rejected", rejected]], p, high),
    panel(width, "2. After a rejection, draw from the residual",
      [["recovered", often > 1e-12 ? left : left.map(() => 0)]], null, high),
    panel(width, "3. The output follows p", [["kept", kept], ["recovered", recovered]], p, high));
}
