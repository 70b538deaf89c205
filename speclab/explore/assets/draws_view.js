// The next word, drawn many times: shares of what comes out, and the probabilities of the target.

import { panel, WORDS } from "./bench_view.js";
import { random } from "./chance.js";
import { factsAt } from "./details_view.js";
import { byId, fixed, marked, plural, put, shortened } from "./dom.js";
import {
  drawnWord, expectedVariation, limitOf, normalised, split, totalVariation,
} from "./rule.js";

const OTHER = "other";

function ofFiveWords({ p, q }) {
  const [target, draft] = [normalised(p), normalised(q)];
  const best = draft.indexOf(Math.max(...draft));
  return { names: WORDS, p: target, q: draft, kept: split(target, draft).kept, best };
}

/** p, q and min(p, q) at the chosen position: the draft's best tokens, all others as one entry. */
function ofToken(view) {
  const facts = factsAt(view, view.state.position);
  const rows = facts.best;
  const p = rows.map((row) => row.p);
  const q = rows.map((row) => row.q);
  const { kept } = split(p, q);
  const rest = (whole, parts) => Math.max(0, whole - parts.reduce((sum, part) => sum + part, 0));
  p.push(rest(1, p));
  q.push(rest(1, q));
  kept.push(Math.min(rest(facts.overlap, kept), p[rows.length], q[rows.length]));
  const names = rows.map((row) => shortened(marked(view.trace.strings[row.token]), 9) || "∅");
  return { names: [...names, OTHER], p, q, kept, best: 0 };
}

/** Can the chosen token be drawn? Only where p and q belong to sampled text and were recorded. */
export function hasToken(view) {
  return Boolean(view.trace && view.trace.top && view.run.temperature > 0);
}

/** Is there sampled text, whose tokens can be drawn at its temperature? */
function hasSampled(view) {
  return Boolean(view.trace && view.trace.top && view.trace.runs.some((run) => run.temperature > 0));
}

function sourceOf(view) {
  const { draws, bench } = view.state;
  return draws.source === "token" && hasToken(view) ? ofToken(view) : ofFiveWords(bench);
}

/** Draw more words by both rules, with the coins of the seed. */
export function drawMore(view, count) {
  const { draws } = view.state;
  const source = sourceOf(view);
  draws.next ??= random(draws.seed);
  for (let draw = 0; draw < count; draw++) {
    draws.lossless[drawnWord(source, true, draws.next)] += 1;
    draws.lossy[drawnWord(source, false, draws.next)] += 1;
  }
  draws.drawn += count;
}

/** No draws yet. */
export function noDraws(source = "words", seed = 1) {
  return { source, seed, drawn: 0, next: null, lossless: new Array(6).fill(0),
    lossy: new Array(6).fill(0) };
}

function sentenceOf(draws, source) {
  const gap = totalVariation(source.p, limitOf(source, false));
  const lossy = gap > 0.005
    ? `The careless rule stays ${fixed(gap)} away from p, however many words are drawn.`
    : "With these probabilities the careless rule is exact as well.";
  if (!draws.drawn) {
    return `Nothing is drawn yet. ${lossy} It keeps the draft's best word with min(1, p/q), as if `
      + "that word had been drawn from q.";
  }
  const shares = draws.lossless.slice(0, source.p.length).map((count) => count / draws.drawn);
  const away = fixed(totalVariation(source.p, shares));
  const expected = fixed(expectedVariation(source.p, draws.drawn));
  return `The lossless rule follows p. After ${plural(draws.drawn, "word")} its shares differ from p `
    + `by ${away} (total variation), and as many words drawn from p itself would differ by about `
    + `${expected}. ${lossy}`;
}

export function drawDraws(view) {
  const { draws } = view.state;
  const source = sourceOf(view);
  const isToken = source.names !== WORDS;
  const limit = limitOf(source, false);
  const shares = (counts) => source.p.map((_, i) => (draws.drawn ? counts[i] / draws.drawn : 0));
  const panels = [
    ["Lossless rule (rejection)", shares(draws.lossless)],
    ["Careless rule (ratio)", shares(draws.lossy)],
  ];
  const highest = Math.max(...source.p, ...limit, ...panels.flatMap(([, values]) => values));
  const high = Math.min(1, Math.ceil(highest * 5 + 0.2) / 5);
  const whole = byId("draws-picture").clientWidth;
  const width = whole > 640 ? Math.floor((whole - 16) / 2) : whole;
  const [isSampled, isThere] = [hasSampled(view), hasToken(view)];
  byId("draws-source").hidden = !isSampled;
  document.querySelector("[name=source][value=token]").disabled = !isThere;
  put("draws-note", isSampled && !isThere
    ? `At temperature ${view.run.temperature} the target draws nothing, so only the five words can be `
      + "drawn. Choose a higher temperature to draw the chosen token." : []);
  document.querySelector(`[name=source][value=${isToken ? "token" : "words"}]`).checked = true;
  put("draws-seed", draws.seed);
  put("draws-words", sentenceOf(draws, source));
  put("draws-picture", panels.map(([title, values]) =>
    panel(width, `${title}, ${plural(draws.drawn, "word")}`, [["count", values]], source.p, high,
      source.names)));
}
