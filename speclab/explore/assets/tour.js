// The tour: saved states of the page, each with a sentence, a question, and what happens then.

import { byId, el, fixed, inWords, plural, put, targetPasses, times, word } from "./dom.js";
import { chainOf } from "./gamma_view.js";
import { choiceOf } from "./machine_view.js";
import {
  cutOf, domainsOf, domainSums, middleText, shapeWords, textsOf, textSums, tokensPerPass,
} from "./model.js";

export const FIRST_TREE = { kind: "tree", depth: 3, branches: 2, budget: 8 };
const [CHEAP, EXPENSIVE] = [0.05, 0.3]; // c

function greedyRun(trace) {
  return Math.max(0, trace.runs.findIndex((run) => run.temperature === 0));
}

/** One block of a median text, with a rejection after as many kept tokens as there are. */
function onePass(view) {
  const run = greedyRun(view.trace);
  const recorded = view.trace.runs[run];
  const text = middleText(recorded, domainsOf(recorded)[0], chainOf(4));
  const { blocks } = cutOf(recorded, text, chainOf(4), 1);
  const rejected = blocks.filter((block) => block.ending === "recovered");
  const most = Math.max(0, ...rejected.map((block) => block.accepted));
  const found = rejected.find((block) => block.accepted === most) ?? blocks[0];
  const step = blocks.indexOf(found);
  const position = found.start + found.emitted - 1;
  const state = { run, text, shape: chainOf(4), seed: 1 };
  return {
    title: "One target pass",
    section: "text-section",
    before: { ...state, position: found.start, step: Math.max(0, step - 1) },
    words: "The text is written up to here. The draft now proposes "
      + `${plural(found.drafted, "token")}, and one target pass checks them.`,
    question: "How many new tokens will this one pass yield? Guess first.",
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
  return {
    title: "A longer draft",
    section: "beside-section",
    before: { ...state, shape: chainOf(4), beside: 4, besideDraft: recorded.draft },
    words: "With gamma 4 the draft proposes 4 tokens before each target pass.",
    question: "What happens at gamma 16? Guess how many target passes it saves.",
    after: { ...state, shape: chainOf(4), beside: 16, besideDraft: recorded.draft },
    answer: () => {
      const [short, long] = [4, 16].map((gamma) => textSums(recorded, text, chainOf(gamma)));
      const wasted = ({ drafted, accepted }) => drafted - accepted;
      return [`The number of target passes ${change(short.blocks, long.blocks)}. The number of `
        + `drafted tokens that are wasted ${change(wasted(short), wasted(long))}.`];
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
  return {
    title: "An easy and a hard text",
    section: "text-section",
    before: { ...state, text: easy },
    words: `This text (${recorded.domain[easy]}) is the easiest for the draft. One target pass `
      + `yields ${fixed(rate(easy))} tokens.`,
    question: "How many tokens does a target pass yield in the hardest text? Guess first.",
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
  return {
    title: "A second choice",
    section: "tree-section",
    before: { ...state, shape: chainOf(4) },
    words: "The draft's first choice is wrong here, so the whole chain after it is wasted.",
    question: "Would a second choice for each token help? Guess how many tokens are kept then.",
    after: { ...state, shape: FIRST_TREE },
    answer: () => {
      const kept = tree.blocks[tree.tokens[position].block].accepted;
      return [`With two choices per token the target keeps ${plural(kept, "token")} here. `
        + `The whole text needs ${targetPasses(tree.blocks.length)} with the `
        + `tree and ${chain.blocks.length} with the chain.`];
    },
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
    words: `Above temperature 0 the draft draws its tokens at random. This draw needs `
      + `${targetPasses(first)}.`,
    question: "What changes with another draw: the text, the number of passes, or both?",
    after: { ...state, seed },
    answer: () => [`The text stays the same, because it is the target's own. Another draw needs `
      + `${targetPasses(passes(seed))}.`],
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
  return {
    title: "The cost of a draft",
    section: "machine-section",
    before: { ...state, machine: machine(CHEAP) },
    words: `Here a draft pass takes 5 % of a target pass. In ${domain} the fastest setting is `
      + `${shapeWords(cheap.shape)} (${times(cheap.speedup)}).`,
    question: "What is the fastest setting if a draft pass takes 30 %? Guess first.",
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

/** The steps that the recorded runs allow, each { title, section, before, words, question, after,
 * answer }. */
export function stepsOf(view) {
  return STEPS.map((make) => make(view)).filter(Boolean);
}

/** The panel of the tour at its start, at a step, or at a step whose answer is shown. */
export function drawTour(view, act) {
  const { steps, tour: { number, isShown } } = view;
  const step = steps[number];
  put("tour-name", step ? `${number + 1}. ${step.title}`
    : `A tour in ${inWords(steps.length)} steps`);
  put("tour-steps", steps.map(({ title }, place) => el("button", {
    type: "button", "aria-pressed": place === number, "aria-label": `Step ${place + 1}: ${title}`,
    onclick: () => act.tour(place),
  }, String(place + 1))));
  put("tour-words", step ? step.words
    : "Each step shows a saved state of this page and asks a question. Guess before you look.");
  put("tour-question", step ? step.question : []);
  put("tour-answer", step && isShown ? step.answer() : []);
  const isLast = number === steps.length - 1;
  const next = isLast ? "End of the tour" : "Next step";
  put("tour-next", step ? next : "Start the tour");
  byId("tour-show").hidden = !step || isShown;
}
