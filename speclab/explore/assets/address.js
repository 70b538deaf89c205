// The address of the page holds what is shown, so that a link leads to a place.

import { nameOf } from "./model.js";

export function addressOf({ run, state }) {
  return `#${new URLSearchParams({
    text: run.prompt[state.text],
    T: run.temperature,
    draft: nameOf(state.shape),
    token: state.position + 1,
    seed: state.seed,
  })}`;
}

function shapeNamed(name) {
  const [kind, sizes = ""] = name.split(":");
  const [first, branches, budget] = sizes.split(",").map(Number);
  const within = (value, most) => Number.isInteger(value) && value >= 1 && value <= most;
  if (kind === "chain" && within(first, 16)) return { kind, gamma: first };
  const isTree = within(first, 8) && within(branches, 5) && within(budget, 32);
  return kind === "tree" && isTree ? { kind, depth: first, branches, budget } : null;
}

/** What of the state an address names; nothing of a place that is not on this page. */
export function stateAt(address, trace) {
  const asked = new URLSearchParams(address.slice(1));
  const run = trace.runs.findIndex((one) => String(one.temperature) === asked.get("T"));
  const text = run < 0 ? -1 : trace.runs[run].prompt.indexOf(asked.get("text"));
  const shape = shapeNamed(asked.get("draft") ?? "");
  if (text < 0 || !shape) return {};
  const number = (name) => Math.max(1, Number.parseInt(asked.get(name), 10) || 1);
  const position = Math.min(number("token"), trace.runs[run].length[text]) - 1;
  return { run, text, shape, position, seed: number("seed") };
}
