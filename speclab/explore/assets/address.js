// The address of the page holds what is shown, so that a link leads to it.

import { machineName, machineNamed } from "./machine.js";
import { draftsOf, hasCopies, LARGEST_GAMMA, nameOf, runOf } from "./model.js";

const LONGEST_MATCH = 8; // tokens (speclab/copying.py)

export function addressOf({ run, state, trace }) {
  const named = {
    text: run.prompt[state.text],
    T: run.temperature,
    draft: nameOf(state.shape),
    token: state.position + 1,
    seed: state.seed,
    beside: state.beside,
    machine: machineName(state.machine),
    batch: state.machine.batch,
  };
  if (draftsOf(trace).length > 1) Object.assign(named, { model: run.draft, with: state.besideDraft });
  if (state.step !== null) named.step = state.step + 1;
  return `#${new URLSearchParams(named)}`;
}

function within(value, most) {
  return Number.isInteger(value) && value >= 1 && value <= most;
}

function shapeNamed(name) {
  const copies = /^(?:chain:(\d+)\+)?lookup:(\d+)$/.exec(name);
  if (copies) {
    const [gamma, least] = [Number(copies[1] ?? 0), Number(copies[2])];
    const fits = (gamma === 0 || within(gamma, LARGEST_GAMMA)) && within(least, LONGEST_MATCH);
    return fits ? { kind: "lookup", least, gamma } : null;
  }
  const [kind, sizes = ""] = name.split(":");
  const [first, branches, budget] = sizes.split(",").map(Number);
  if (kind === "chain" && within(first, LARGEST_GAMMA)) return { kind, gamma: first };
  const isTree = within(first, 8) && within(branches, 5) && within(budget, 32);
  return kind === "tree" && isTree ? { kind, depth: first, branches, budget } : null;
}

/** What of the state an address names; nothing of a text that is not on this page. */
export function stateAt(address, trace, machines) {
  const asked = new URLSearchParams(address.slice(1));
  const drafts = draftsOf(trace);
  const run = runOf(trace, asked.get("model") ?? drafts[0], Number(asked.get("T") ?? NaN));
  const text = run < 0 ? -1 : trace.runs[run].prompt.indexOf(asked.get("text"));
  const shape = shapeNamed(asked.get("draft") ?? "");
  if (text < 0 || !shape) return {};
  if (shape.kind === "lookup" && !hasCopies(trace.runs[run])) return {};
  const number = (name) => Math.max(1, Number.parseInt(asked.get(name), 10) || 1);
  const position = Math.min(number("token"), trace.runs[run].length[text]) - 1;
  const state = { run, text, shape, position, seed: number("seed") };
  state.step = asked.has("step") ? number("step") - 1 : null;
  if (within(Number(asked.get("beside")), LARGEST_GAMMA)) state.beside = number("beside");
  if (drafts.includes(asked.get("with"))) state.besideDraft = asked.get("with");
  const machine = machineNamed(asked.get("machine") ?? "", number("batch"), machines);
  return machine ? { ...state, machine } : state;
}
