// The text as its blocks cut it, and the buttons that step through them.

import {
  byId, el, fixed, plural, put, readable, seen, shortened, targetPasses, word,
} from "./dom.js";
import {
  chosenWords, cutOf, draftsOf, ruleOf, runOf, shapeWords, textSums, tokensPerPass,
} from "./model.js";

const LONGEST = 60; // characters of a token that are shown in the text
const WRAPPED = 24; // a longer one may be broken over lines

function tokenText(view, position) {
  return view.trace.strings[view.column("token")[position]];
}

/** Does a word go on over the border before this position? */
function isInWord(view, position) {
  if (position === 0) return false;
  const ends = /[\p{L}\p{M}]$/u.test(tokenText(view, position - 1));
  return ends && /^[\p{L}\p{M}]/u.test(tokenText(view, position));
}

/** May a line end before this token? Inside a word only where a block begins. */
function breaks(view, token) {
  return token.place === 0 || !isInWord(view, token.position);
}

/** A token's text in the colour of its kind. */
export function shownToken(view, token, attributes = {}) {
  const text = tokenText(view, token.position);
  const long = text.length > WRAPPED || text.includes("\n");
  return el(
    "span",
    { ...attributes, class: `token ${token.kind}${long ? " long" : ""}` },
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
    onclick: () => {
      act.select(token.position);
      act.openSheet();
    },
    onfocus: () => act.preview(token.position),
    onmouseenter: () => act.preview(token.position),
    onmouseleave: () => act.preview(null),
  });
}

function endsLine(view, token) {
  return /\n$/.test(readable(tokenText(view, token.position)));
}

/** A text as its blocks, each a span of tokens. */
export function coloured(view, { blocks, tokens }, step, drawn) {
  return blocks.map((block, number) => {
    const later = step !== null && number > step;
    const now = step === number;
    const own = tokens.filter((token) => token.block === number);
    const name = `block${later ? " later" : ""}${now ? " now" : ""}`;
    return el("span", { class: name }, own.flatMap((token) => [
      breaks(view, token) ? el("wbr") : null,
      drawn(token),
      endsLine(view, token) ? el("br") : null,
    ]));
  });
}

/** The coloured text. */
export function drawText(view, act) {
  put("words", coloured(view, view.cut, view.state.step, (token) => tokenButton(view, token, act)));
}

function wasted({ blocks }) {
  return blocks.reduce((sum, block) => sum + block.drafted - block.accepted, 0);
}

function difference(change, fewer, more, same) {
  if (change === 0) return same;
  return change < 0 ? fewer(-change) : more(change);
}

/** What another shape or draft changes, in one line: target passes saved and drafted tokens wasted.
 * drafts: the names of both drafts where a page has two. */
export function comparison(shape, cut, otherShape, other, drafts = []) {
  const [name, otherName] = [shape, otherShape].map((one, i) => shapeWords(one, drafts[i]));
  if (name === otherName) return `Both are ${name}. Choose another gamma to compare.`;
  const passes = difference(
    other.blocks.length - cut.blocks.length,
    (count) => `saves ${targetPasses(count)}`,
    (count) => `needs ${plural(count, "more target pass", "more target passes")}`,
    "needs the same number of target passes",
  );
  const waste = difference(
    wasted(other) - wasted(cut),
    (count) => `wastes ${plural(count, "fewer drafted token", "fewer drafted tokens")}`,
    (count) => `wastes ${plural(count, "more drafted token", "more drafted tokens")}`,
    "wastes the same number of drafted tokens",
  );
  return `Compared with ${name}, ${otherName} ${passes} and ${waste}.`;
}

function totals(shape, cut, draft) {
  const passes = targetPasses(cut.blocks.length);
  return `${shapeWords(shape, draft)}, ${passes}, ${plural(wasted(cut), "drafted token")} wasted`;
}

/** The same text with another gamma or draft, token under token, where that is open. */
export function drawBeside(view) {
  if (!byId("beside-part").open) return;
  const { run, state, trace } = view;
  const shape = { kind: "chain", gamma: state.beside };
  const found = runOf(trace, state.besideDraft, run.temperature);
  const other = trace.runs[found] ?? run; // where the draft was not recorded at this temperature
  const drafts = draftsOf(trace).length > 1 ? [run.draft, other.draft] : [];
  const cut = cutOf(other, other.prompt.indexOf(run.prompt[state.text]), shape, state.seed);
  for (const input of document.querySelectorAll("[name=beside-model]")) {
    input.checked = input.value === other.draft;
  }
  byId("beside").value = state.beside;
  put("beside-value", state.beside);
  put("beside-summary", comparison(state.shape, view.cut, shape, cut, drafts));
  put("beside-note", `Upper row: ${totals(state.shape, view.cut, drafts[0])}. Lower row: `
    + `${totals(shape, cut, drafts[1])}. A bar begins a target pass.`);
  put("beside-words", view.cut.tokens.flatMap((token, position) => {
    const text = tokenText(view, position);
    const shown = shortened(readable(text).replace(/\n/g, ""), WRAPPED);
    const pair = [token, cut.tokens[position]].map((one) =>
      el("span", { class: `token ${one.kind}${one.place ? "" : " starts"}` }, shown));
    return [
      isInWord(view, position) ? null : el("wbr"),
      el("span", { class: "pair" }, pair),
      text.includes("\n") ? el("br") : null,
    ];
  }));
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
    `With ${chosenWords(view)}, `,
    el("strong", null, targetPasses(passes)),
    passes === 1 ? " yields " : " yield ",
    `${plural(length, "token")}, `,
    el("strong", null, `${fixed(length / passes)} per target pass`),
    ". Plain decoding needs one pass per token.",
  ];
  if (ruleOf(run, state.shape) === "rejection") {
    const sums = textSums(run, state.text, state.shape);
    sentence.push(
      ` This is one draw of the draft's tokens (seed ${state.seed}). Over all draws we expect `,
      el("strong", null, `${fixed(sums.blocks, 1)} passes`),
      `, or ${fixed(tokensPerPass(sums))} tokens per target pass.`,
    );
  }
  put("summary", sentence);
  const asked = view.trace.prompts[run.prompt[state.text]];
  put("asked", asked ? [el("span", { class: "label" }, "Prompt: "), shortened(seen(asked), 1200)]
    : []);
}

function drafted(view, block) {
  if (block.isCopied) return plural(block.drafted, "copied token");
  const tokens = plural(block.drafted, "drafted token");
  return view.state.shape.kind === "tree" ? `a tree of ${tokens}` : tokens;
}

function kept(view, block) {
  if (block.accepted === 0) return "keeps none and writes ";
  if (block.ending === "recovered") {
    const next = block.rejected === 1 ? "the next" : "all choices for the next";
    return `keeps ${block.accepted}, rejects ${next} and writes `;
  }
  const isRow = view.state.shape.kind !== "tree";
  const all = isRow ? `all ${block.accepted}` : `${block.accepted}, to the end of a branch,`;
  return `keeps ${all} and adds `;
}

/** What the block that is stepped to did, in words. */
export function drawStep(view) {
  const { cut, state } = view;
  const whole = state.step === null;
  const number = whole ? null : state.step;
  put("step-name", whole ? "All blocks" : `Block ${number + 1} of ${cut.blocks.length}`);
  if (whole) {
    put("step-words", "A block is a draft and the target pass that checks it. Step through the "
      + "text block by block, or choose a token to see why it was kept or rejected.");
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
