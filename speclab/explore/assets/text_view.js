// The text as its blocks cut it, and the buttons that step through them.

import { byId, el, fixed, plural, put, readable, seen, shortened, word } from "./dom.js";
import { cutOf, ruleOf, textSums, tokensPerPass } from "./model.js";

const LONGEST = 60; // characters of a token that are shown in the text
const WRAPPED = 24; // a longer one may be broken over lines

function tokenText(view, position) {
  return view.trace.strings[view.column("token")[position]];
}

/** May a line end before this token? Inside a word it may not. */
function breaks(view, token) {
  if (token.position === 0 || token.place === 0) return true;
  const before = tokenText(view, token.position - 1);
  return !(/[\p{L}\p{M}]$/u.test(before) && /^[\p{L}\p{M}]/u.test(tokenText(view, token.position)));
}

function shownToken(view, token, attributes) {
  const text = tokenText(view, token.position);
  const long = text.length > WRAPPED || text.includes("\n");
  return el(
    "span",
    { class: `token ${token.kind}${long ? " long" : ""}`, ...attributes },
    readable(shortened(text, LONGEST)).replace(/\n$/, ""),
  );
}

function tokenButton(view, token, act) {
  const text = tokenText(view, token.position);
  const chosen = token.position === view.state.position;
  const label = `${text.trim() || "white space"}, ${token.kind}, block ${token.block + 1}`;
  return shownToken(view, token, {
    role: "button",
    tabindex: chosen ? 0 : -1,
    "aria-pressed": chosen,
    "aria-label": label,
    "data-position": token.position,
    onclick: () => act.select(token.position),
    onfocus: () => act.preview(token.position),
    onmouseenter: () => act.preview(token.position),
    onmouseleave: () => act.preview(null),
  });
}

function coloured(view, { blocks, tokens }, step, drawn) {
  return blocks.map((block, number) => {
    const later = step !== null && number > step;
    const now = step === number;
    const own = tokens.filter((token) => token.block === number);
    const name = `block${later ? " later" : ""}${now ? " now" : ""}`;
    return el("span", { class: name }, own.flatMap((token) => [
      breaks(view, token) ? el("wbr") : null,
      drawn(token),
      /\n$/.test(readable(tokenText(view, token.position))) ? el("br") : null,
    ]));
  });
}

/** The coloured text. */
export function drawText(view, act) {
  put("words", coloured(view, view.cut, view.state.step, (token) => tokenButton(view, token, act)));
}

/** The same text under another gamma, where that is open. */
export function drawBeside(view) {
  if (!byId("beside-part").open) return;
  const { run, state } = view;
  const cut = cutOf(run, state.text, { kind: "chain", gamma: state.beside }, state.seed);
  const passes = cut.blocks.length;
  const tokens = cut.tokens.length;
  put("beside-value", state.beside);
  put("beside-summary", `${plural(passes, "target pass", "target passes")} for `
    + `${plural(tokens, "token")}: ${fixed(tokens / passes)} tokens per pass.`);
  put("beside-words", coloured(view, cut, null, (token) => shownToken(view, token)));
}

/** The token that is chosen now, marked without writing the text again. */
export function markChosen(position, focus) {
  for (const token of document.querySelectorAll("#words .token")) {
    const chosen = Number(token.dataset.position) === position;
    token.setAttribute("aria-pressed", chosen);
    token.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) token.focus({ preventScroll: false });
  }
}

function counted(view) {
  const count = { accepted: 0, recovered: 0, bonus: 0 };
  for (const token of view.cut.tokens) count[token.kind] += 1;
  return count;
}

export function drawLegend(view) {
  const names = Object.entries(counted(view));
  put(
    "legend",
    names.map(([kind, count]) =>
      el("li", null, el("span", { class: `token ${kind}` }, kind), ` ${count}`),
    ),
    el("li", null, el("span", { class: "bar", "aria-hidden": "true" }), "a target pass begins"),
  );
}

/** The sentence with the numbers of this text. */
export function drawSummary(view) {
  const { run, state, cut } = view;
  const length = run.length[state.text];
  const passes = cut.blocks.length;
  const sentence = [
    el("strong", null, `${plural(passes, "target pass", "target passes")}`),
    ` for ${plural(length, "token")}: `,
    el("strong", null, `${fixed(length / passes)} tokens per pass`),
    ". Plain decoding takes one pass per token.",
  ];
  if (ruleOf(run, state.shape) === "rejection") {
    const sums = textSums(run, state.text, state.shape);
    sentence.push(
      ` This is one draw of the draft's tokens (seed ${state.seed}); over all draws `,
      el("strong", null, `${fixed(sums.blocks, 1)} passes`),
      ` are expected, ${fixed(tokensPerPass(sums))} tokens per pass.`,
    );
  }
  put("summary", sentence);
  const asked = view.trace.prompts[run.prompt[state.text]];
  put("asked", asked ? [el("span", { class: "label" }, "Asked: "), shortened(seen(asked), 1200)]
    : []);
}

function drafted(view, block) {
  const tokens = plural(block.drafted, "drafted token");
  return view.state.shape.kind === "chain" ? tokens : `a tree of ${tokens}`;
}

function kept(view, block) {
  if (block.accepted === 0) return "keeps none and writes ";
  if (block.ending === "recovered") return `keeps ${block.accepted}, rejects the next and writes `;
  const chain = view.state.shape.kind === "chain";
  const all = chain ? `all ${block.accepted}` : `${block.accepted}, to the end of a branch,`;
  return `keeps ${all} and adds `;
}

/** What the block that is stepped to did, in words. */
export function drawStep(view) {
  const { cut, state } = view;
  const whole = state.step === null;
  const number = whole ? null : state.step;
  put("step-name", whole ? "All blocks" : `Block ${number + 1} of ${cut.blocks.length}`);
  if (whole) {
    put("step-words", "Step through the text block by block: one block is one target pass.");
    return;
  }
  const block = cut.blocks[number];
  const last = block.start + block.emitted - 1;
  const checked = `One target pass checks ${drafted(view, block)}, `;
  if (!block.ending) {
    put("step-words", checked, `keeps ${block.accepted}, and the text ends.`);
    return;
  }
  const token = word(tokenText(view, last));
  put("step-words", checked, kept(view, block), token, ` (${block.ending}).`);
}
