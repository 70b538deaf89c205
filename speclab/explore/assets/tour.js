// The tour: saved states of the page, each with a sentence, a question, and what happens then.

import { byId, el, fixed, inWords, plural, put, targetPasses, times, word } from "./dom.js";
import { chainOf } from "./gamma_view.js";
import { choiceOf } from "./machine_view.js";
import {
  cutOf, domainsOf, domainSums, middleText, ofTexts, shapeWords, textsOf, textSums, tokensPerPass,
} from "./model.js";

export const FIRST_TREE = { kind: "tree", depth: 3, branches: 2, budget: 8 };
const [CHEAP, EXPENSIVE] = [0.05, 0.3]; // c
const [ODD, EVEN] = [[1, 3, 5], [2, 3, 4]]; // tokens of a pass at gamma 4, of which one is right
const [FEW, MANY] = [20, 50]; // % of the target passes
const [HARD, EASY] = [1.3, 2]; // tokens per target pass

function greedyRun(trace) {
  return Math.max(0, trace.runs.findIndex((run) => run.temperature === 0));
}

/** One block of a median text, with a rejection after as many kept tokens as there are; not the
 * first, so that the text before it can be shown. Null where the text is a single block. */
function onePass(view) {
  const run = greedyRun(view.trace);
  const recorded = view.trace.runs[run];
  const text = middleText(recorded, domainsOf(recorded)[0], chainOf(4));
  const { blocks } = cutOf(recorded, text, chainOf(4), 1);
  const later = blocks.slice(1);
  if (!later.length) return null;
  const rejected = later.filter((block) => block.ending === "recovered");
  const most = Math.max(0, ...rejected.map((block) => block.accepted));
  const found = rejected.find((block) => block.accepted === most) ?? later[0];
  const step = blocks.indexOf(found);
  const position = found.start + found.emitted - 1;
  const state = { run, text, shape: chainOf(4), seed: 1 };
  return {
    title: "One target pass",
    section: "text-section",
    before: { ...state, position: found.start - 1, step: step - 1 },
    words: "The text is written up to here. The draft now proposes "
      + `${plural(found.drafted, "token")}, and one target pass checks them.`,
    question: "How many new tokens will this one pass yield?",
    guesses: (found.emitted % 2 ? ODD : EVEN).map(String),
    right: (found.emitted % 2 ? ODD : EVEN).indexOf(found.emitted),
    after: { ...state, position, step },
    answer: () => {
      const token = word(view.trace.strings[view.column("token")[position]]);
      const kept = `The target keeps ${plural(found.accepted, "token")}`;
      const yielded = `One pass yields ${plural(found.emitted, "token")}.`;
      if (!found.ending) return [`${kept}, and the text ends. ${yielded}`];
      const verb = found.ending === "bonus" ? "adds " : "rejects the next and writes ";
      return [`${kept}, ${verb}`, token, `. ${yielded}`];
    },
  };
}

function change(before, after) {
  const [from, to] = [before, after].map((count) => fixed(count, 0));
  if (from === to) return `stays at ${from}`;
  return `${before < after ? "rises" : "falls"} from ${from} to ${to}`;
}

/** A text at gamma 4 and 16, of the domain in which a pass yields most tokens. */
function longerDraft(view) {
  const run = greedyRun(view.trace);
  const recorded = view.trace.runs[run];
  const rate = (domain) => tokensPerPass(domainSums(recorded, domain, chainOf(4)));
  const [domain] = domainsOf(recorded).sort((a, b) => rate(b) - rate(a));
  const text = middleText(recorded, domain, chainOf(4));
  const state = { run, text, seed: 1, step: null, position: null };
  const [short, long] = [4, 16].map((gamma) => textSums(recorded, text, chainOf(gamma)));
  const saved = Math.round(100 * (1 - long.blocks / short.blocks));
  return {
    title: "A longer draft",
    section: "beside-section",
    before: { ...state, shape: chainOf(4), beside: 4, besideDraft: recorded.draft },
    words: "With gamma 4 the draft proposes 4 tokens before each target pass.",
    question: "What share of the target passes does gamma 16 save?",
    guesses: [`less than ${FEW} %`, `${FEW} to ${MANY} %`, `more than ${MANY} %`],
    right: saved < FEW ? 0 : saved > MANY ? 2 : 1,
    after: { ...state, shape: chainOf(4), beside: 16, besideDraft: recorded.draft },
    answer: () => {
      const wasted = ({ drafted, accepted }) => drafted - accepted;
      const share = saved > 0 ? `, by ${saved} %` : "";
      return [`The number of target passes ${change(short.blocks, long.blocks)}${share}. The number `
        + `of drafted tokens that are wasted ${change(wasted(short), wasted(long))}.`];
    },
  };
}

/** The text with most tokens per target pass, and the one with fewest. */
function easyAndHard(view) {
  const run = greedyRun(view.trace);
  const recorded = view.trace.runs[run];
  const rate = (text) => tokensPerPass(textSums(recorded, text, chainOf(4)));
  const texts = textsOf(recorded, null).sort((a, b) => rate(b) - rate(a));
  const easy = texts[0];
  const hard = texts[texts.length - 1];
  const state = { run, seed: 1, step: null, position: null, shape: chainOf(4) };
  const slowest = Number(fixed(rate(hard)));
  return {
    title: "An easy and a hard text",
    section: "text-section",
    before: { ...state, text: easy },
    words: `This text (${recorded.domain[easy]}) is the easiest for the draft. One target pass `
      + `yields ${fixed(rate(easy))} tokens.${ofTexts(view.trace)}`,
    question: "How many tokens does a target pass yield in the hardest text?",
    guesses: [`fewer than ${HARD}`, `${HARD} to ${EASY}`, `more than ${EASY}`],
    right: slowest < HARD ? 0 : slowest > EASY ? 2 : 1,
    after: { ...state, text: hard },
    answer: () => [`The hardest text (${recorded.domain[hard]}) yields ${fixed(rate(hard))} tokens `
      + "per target pass. Plain decoding yields 1."],
  };
}

/** A position where the draft's first choice is wrong and the tree's second choice is right; null
 * where no text has one. */
function savedByTree(recorded) {
  for (const text of textsOf(recorded, null)) {
    const chain = cutOf(recorded, text, chainOf(4), 1);
    const tree = cutOf(recorded, text, FIRST_TREE, 1);
    const position = tree.tokens.findIndex((token, i) =>
      token.kind === "accepted" && token.place === 0 && chain.tokens[i].kind === "recovered"
      && chain.tokens[i].place === 0);
    if (position >= 0) return { text, position, chain, tree };
  }
  return null;
}

function secondChoice(view) {
  const run = view.trace.runs.findIndex((one) => one.temperature === 0);
  const found = run >= 0 && savedByTree(view.trace.runs[run]);
  if (!found) return null;
  const { text, position, chain, tree } = found;
  const state = { run, text, seed: 1, step: null, position };
  const kept = tree.blocks[tree.tokens[position].block].accepted;
  return {
    title: "A second choice",
    section: "tree-section",
    before: { ...state, shape: chainOf(4) },
    words: "The draft's first choice is wrong here, so the whole chain after it is wasted.",
    question: "With a second choice for each token, how many drafted tokens are kept here?",
    guesses: ["1", "2", "3"],
    right: kept - 1,
    after: { ...state, shape: FIRST_TREE },
    answer: () => [`With two choices per token the target keeps ${plural(kept, "token")} here. `
      + `The whole text needs ${targetPasses(tree.blocks.length)} with the tree and `
      + `${chain.blocks.length} with the chain.`],
  };
}

function anotherDraw(view) {
  const run = view.trace.runs.findIndex((one) => one.temperature > 0);
  if (run < 0) return null;
  const recorded = view.trace.runs[run];
  const text = middleText(recorded, domainsOf(recorded)[0], chainOf(4));
  const state = { run, text, step: null, position: null, shape: chainOf(4) };
  const passes = (seed) => cutOf(recorded, text, chainOf(4), seed).blocks.length;
  const first = passes(1);
  const others = Array.from({ length: 20 }, (_, i) => i + 2);
  const seed = others.find((other) => passes(other) !== first) ?? 2;
  return {
    title: "Drawn at random",
    section: "text-section",
    before: { ...state, seed: 1 },
    words: "Above temperature 0 draft and target draw their tokens at random. This page holds the "
      + "recorded text fixed and draws only the draft's tokens. This draw needs "
      + `${targetPasses(first)}.`,
    question: "What changes when a real decoder draws again?",
    guesses: ["only the number of passes", "only the text", "the text and the number of passes"],
    right: 2,
    after: { ...state, seed },
    answer: () => ["A real decoder writes another text, and all its texts follow the target's "
      + "distribution. It needs another number of passes as well. Here the text stays fixed, and "
      + `another draw of the draft's tokens needs ${targetPasses(passes(seed))}.`],
  };
}

function costOfDrafting(view) {
  const run = greedyRun(view.trace);
  const recorded = view.trace.runs[run];
  const [domain] = domainsOf(recorded);
  const text = middleText(recorded, domain, chainOf(4));
  const state = { run, text, seed: 1, step: null, position: null, shape: chainOf(4) };
  const machine = (c) => ({ ...view.machines.accelerator, c, preset: null });
  const bestAt = (c) => {
    const { settings, best } = choiceOf({ run: recorded, state: { ...state, machine: machine(c) } },
      domain);
    return settings[best];
  };
  const cheap = bestAt(CHEAP);
  const { gamma } = bestAt(EXPENSIVE).shape;
  return {
    title: "The cost of a draft",
    section: "machine-section",
    before: { ...state, machine: machine(CHEAP) },
    words: `Here a draft pass takes 5 % of a target pass. In ${domain} the fastest setting is `
      + `${shapeWords(cheap.shape)}, with ${times(cheap.speedup)}.${ofTexts(view.trace)}`,
    question: "What is the fastest setting if a draft pass takes 30 %?",
    guesses: ["plain decoding", "gamma 1 or 2", "gamma 3 or more"],
    right: gamma > 2 ? 2 : Math.min(gamma, 1),
    after: { ...state, machine: machine(EXPENSIVE) },
    answer: () => {
      const expensive = bestAt(EXPENSIVE);
      const gain = expensive.shape.gamma ? `, with ${times(expensive.speedup)}` : "";
      const same = shapeWords(expensive.shape) === shapeWords(cheap.shape) ? "still" : "now";
      return [`In ${domain} it is ${same} ${shapeWords(expensive.shape)}${gain}. An expensive draft `
        + "must be short."];
    },
  };
}

const STEPS = [onePass, longerDraft, easyAndHard, secondChoice, anotherDraw, costOfDrafting];

/** The steps that the recorded runs allow, each { title, section, before, words, question, guesses,
 * right (the place of the right guess), after, answer }. */
export function stepsOf(view) {
  return STEPS.map((make) => make(view)).filter(Boolean);
}

const START = "Each step shows a saved state of this page and asks a question. Guess before you look.";
const END = "From here on change anything on this page, or read on below.";

/** How many guesses were right, in words; "" before the first. */
export function countOf(steps, guesses) {
  const made = steps.filter((_, number) => guesses[number] !== undefined).length;
  const right = steps.filter((step, number) => guesses[number] === step.right).length;
  return made ? `${right} of ${plural(made, "guess", "guesses")} right` : "";
}

function guessWords(step, guess) {
  if (guess === undefined) return "";
  const name = `“${step.guesses[guess]}”`;
  return guess === step.right ? `You guessed ${name}: right. ` : `You guessed ${name}. `;
}

/** The panel of the tour at its start, at a step, at a step whose answer is shown, or at its end. */
export function drawTour(view, act) {
  const { steps, tour: { number, isShown, guesses } } = view;
  const step = steps[number];
  const isOver = number === steps.length;
  const outside = isOver ? "The end of the tour" : `A tour in ${inWords(steps.length)} steps`;
  put("tour-name", step ? `${number + 1}. ${step.title}` : outside);
  put("tour-count", countOf(steps, guesses));
  put("tour-steps", steps.map(({ title }, place) => el("button", {
    type: "button", "aria-pressed": place === number, "aria-label": `Step ${place + 1}: ${title}`,
    onclick: () => act.tour(place),
  }, String(place + 1))));
  put("tour-words", step ? step.words : isOver ? END : START);
  put("tour-question", step ? step.question : []);
  put("tour-guesses", step && !isShown ? step.guesses.map((guess, place) =>
    el("button", { type: "button", class: "guess", onclick: () => act.guess(place) }, guess)) : []);
  put("tour-answer", step && isShown ? [guessWords(step, guesses[number]), ...step.answer()] : []);
  const isLast = number === steps.length - 1;
  const next = isLast ? "End of the tour" : "Next step";
  put("tour-next", step ? next : isOver ? "Back to the start" : "Start the tour");
  byId("tour-show").hidden = !step || isShown;
}
