// One token: what draft and target thought of it, and why it was accepted or not.

import { columnOf, draftedOf, NATS, SHARES } from "./data.js";
import {
  choiceName, el, fixed, marked, percent, put, share, shortened, valued, word,
} from "./dom.js";
import { ruleOf } from "./model.js";

/** All that was recorded at a position, which is at this place of its block, from 0. A head's best
 * tokens, entropy and overlap were recorded for the first place only. */
export function factsAt(view, position, place = 0) {
  const { trace, run, state } = view;
  const text = state.text;
  const at = (name) => columnOf(run, text, name)[position];
  const ofDraft = (name) => draftedOf(run, text, name)(position - place, place);
  const facts = {
    position,
    token: at("token"),
    rank: ofDraft("draft_rank"),
    p: run.columns.p_token ? at("p_token") : null,
    q: (run.columns.q_token && ofDraft("q_token")) ?? null,
    isLater: run.ahead > 0 && place > 0,
    detailed: trace.top > 0 && !(run.ahead && place),
    best: [],
  };
  if (!facts.detailed) return facts;
  facts.targetTop = at("target_top");
  facts.overlap = at("overlap") / SHARES;
  facts.targetEntropy = at("target_entropy") / NATS;
  facts.draftEntropy = at("draft_entropy") / NATS;
  const first = (run.first[text] + position) * trace.top;
  for (let rank = 0; rank < trace.top; rank++) {
    const token = run.columns.top_draft_ids[first + rank];
    if (token >= trace.ids.length) continue; // the draft can say fewer
    const q = run.columns.top_draft_q[first + rank] / SHARES;
    const p = run.columns.top_draft_p[first + rank] / SHARES;
    facts.best.push({ token, rank, q, p });
  }
  return facts;
}

const LATER = "This draft is a head: what it says of a token depends on where the block began. All of "
  + "its choices were recorded only for the first token of a block.";
const OUTSIDE = "outside the draft's vocabulary";

function whyBonus(view, token, facts) {
  const block = view.cut.blocks[token.block];
  if (!block.drafted) {
    const { least } = view.state.shape;
    const last = least === 1 ? "last token" : `last ${least} tokens`;
    return [`The ${last} did not occur before, so nothing was copied. `,
      "The target's pass gives one token, as in plain decoding."];
  }
  const end = view.state.shape.kind === "tree"
    ? "The kept tokens before this one reached the end of a branch"
    : `The target kept everything that was ${block.isCopied ? "copied" : "drafted"} before this token`;
  const would = facts.rank === 0 ? "would have been right" : "would have been wrong";
  return [end, ", so its pass added this token for free. Nothing was drafted at this position. ",
    facts.rank === undefined ? "" : `The draft's first choice ${would}.`];
}

function whyCopied(view, token, facts) {
  const own = word(view.trace.strings[facts.token]);
  const { start } = view.cut.blocks[token.block];
  const matched = view.column("matched")[start];
  const last = matched === 1 ? "token" : `${matched} tokens`;
  const copy = `The last ${last} before this block also occurred earlier. `;
  return token.kind === "accepted"
    ? [copy, own, " followed them there too, so the target keeps the copied token."]
    : [copy, "Another token followed them there. The target rejects it and writes ", own, "."];
}

/** Where the text's own token is among the draft's choices. */
function placeInDraft(facts) {
  if (facts.q === 0) return `, which is ${OUTSIDE}`;
  const given = facts.q === null ? "" : ` (${valued("q", facts.q)})`;
  return `, only the draft's ${choiceName(facts.rank)}${given}`;
}

function whyGreedy(view, token, facts) {
  const say = (number) => word(view.trace.strings[number]);
  const own = () => say(facts.token);
  if (token.kind === "accepted") {
    return facts.rank === 0
      ? ["The draft's first choice is the target's most probable token, ", own(),
        ". So the target keeps it."]
      : ["The target's most probable token is ", own(), `, the draft's ${choiceName(facts.rank)}. `,
        "The tree contains it, so the target keeps it."];
  }
  const wanted = ["The target's most probable token is ", own()];
  if (facts.p !== null) wanted.push(` (${valued("p", facts.p)})`);
  wanted.push(placeInDraft(facts));
  if (!facts.best.length) return [...wanted, ". So the target rejects the drafted token."];
  const tried = view.cut.blocks[token.block].rejected;
  const proposed = facts.best.slice(0, tried).flatMap((row, i) => [
    i ? ", " : "",
    say(row.token),
    ` (${valued("q", row.q)}, ${valued("p", row.p)})`,
  ]);
  const rejected = tried > 1 ? "rejects all of them" : "rejects the draft's token";
  return ["The draft proposed ", ...proposed, ". ", ...wanted, `. So the target ${rejected} and `,
    "writes ", own(), "."];
}

/** The token that is drafted and rejected most often, q - p; null where it may be one that is not
 * among the draft's best (its q is that of the last of them, at most). */
function mostRejected(facts) {
  if (!facts.best.length) return null;
  const [most] = [...facts.best].sort((a, b) => b.q - b.p - (a.q - a.p));
  const others = facts.best[facts.best.length - 1].q;
  return most.q - most.p > others ? most : null;
}

function whyRejection(view, token, facts) {
  const say = (number) => word(view.trace.strings[number]);
  const kept = Math.min(1, facts.q / facts.p);
  const rule = ["The draft draws its token from q. ",
    "The target keeps it with probability min(1, p/q). "];
  if (facts.detailed) {
    rule.push(`Here it keeps ${percent(facts.overlap)} of all draws (the overlap). `);
  }
  const given = ["When the output is ", say(facts.token), ", that token was drafted and kept with ",
    `probability min(1, q/p) = ${share(kept)}. `];
  const isAccepted = token.kind === "accepted";
  const drawn = isAccepted
    ? ["The draft drew ", say(facts.token), " from q, and the target kept it"]
    : ["The target rejected the draft's token and drew ", say(facts.token), " from the residual"];
  const parts = [...rule, ...given];
  const most = isAccepted ? null : mostRejected(facts);
  if (most) {
    const part = percent((most.q - most.p) / (1 - facts.overlap));
    parts.push(`${part} of the rejections here are of `, say(most.token),
      ` (${valued("q", most.q)}, but ${valued("p", most.p)}).`);
  }
  return [...drawn, ` (seed ${view.state.seed}).`,
    el("details", null, el("summary", null, "How likely was that?"), el("p", null, parts))];
}

function whyPointMass(view, token, facts) {
  const own = word(view.trace.strings[facts.token]);
  if (token.kind === "accepted") {
    return ["The target drew ", own, `, the draft's ${choiceName(facts.rank)}. `,
      "The tree contains it, so the target keeps it."];
  }
  return ["The target drew ", own, facts.q === 0
    ? `, which is ${OUTSIDE}. `
    : `, the draft's ${choiceName(facts.rank)}. The tree does not contain it. `,
    "So the target rejects the drafted tokens."];
}

/** Why a token is what it is, as a row of nodes. */
export function whyOf(view, token, facts) {
  if (token.kind === "bonus") return whyBonus(view, token, facts);
  if (view.cut.blocks[token.block].isCopied) return whyCopied(view, token, facts);
  const rule = ruleOf(view.run, view.state.shape);
  if (rule === "greedy") return whyGreedy(view, token, facts);
  return rule === "rejection"
    ? whyRejection(view, token, facts)
    : whyPointMass(view, token, facts);
}

function bar(value, kind) {
  const width = `${Math.max(100 * value, value > 0 ? 0.5 : 0)}%`;
  return el("span", { class: `meter ${kind}` },
    el("span", { class: "fill", style: `width:${width}` }));
}

function rowOf(view, row, facts) {
  const own = row.token === facts.token;
  const name = el("td", null, word(view.trace.strings[row.token], 16));
  if (own) name.append(" ", el("span", { class: "tag" }, "the text's"));
  const rank = row.rank === null ? "–" : row.rank + 1;
  const cell = (value, kind) => value === null
    ? el("td", { class: "number" }, "not recorded")
    : el("td", { class: "number" }, bar(value, kind), share(value));
  return el("tr", { class: own ? "own" : "" },
    el("td", { class: "number rank" }, rank), name, cell(row.q, "q"), cell(row.p, "p"));
}

function choices(view, facts) {
  const rows = [...facts.best];
  if (!rows.some((row) => row.token === facts.token)) {
    rows.push({ token: facts.token, rank: facts.rank, q: facts.q, p: facts.p });
  }
  if (!rows.some((row) => row.token === facts.targetTop)) {
    rows.push({ token: facts.targetTop, rank: null, q: null, p: null, targetBest: true });
  }
  const head = ["choice", "token", "q, draft", "p, target"];
  const table = el("table", { class: "choices" },
    el("caption", null, "The draft's most probable tokens here, with the probability that each "
      + "model gives them"),
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows.map((row) => {
      const line = rowOf(view, row, facts);
      if (row.token === facts.targetTop) {
        line.children[1].append(" ", el("span", { class: "tag" }, "target's best"));
      }
      return line;
    })));
  return table;
}

function numbers(view, facts, token) {
  const known = facts.rank === undefined ? null : facts.rank + 1;
  const choice = facts.q === 0 ? "none" : known;
  const rows = [
    ["p, target", facts.p === null ? null : share(facts.p)],
    ["q, draft", facts.q === null ? null : facts.q === 0 ? "0" : share(facts.q)],
    ["draft's choice", choice],
    ["overlap", facts.detailed ? share(facts.overlap) : null],
    ["target entropy", facts.detailed ? `${fixed(facts.targetEntropy)} nats` : null],
    ["draft entropy", facts.detailed ? `${fixed(facts.draftEntropy)} nats` : null],
    ["position", `token ${facts.position + 1}, block ${token.block + 1}`],
    ["token id", view.trace.ids[facts.token]],
  ].filter(([, value]) => value !== null);
  return el("dl", { class: "facts" },
    rows.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

/** The panel beside the text. */
export function drawDetails(view, position, act) {
  const token = view.cut.tokens[position];
  const facts = factsAt(view, position, token.place);
  const text = view.trace.strings[facts.token];
  put("details",
    el("h3", null,
      el("span", { class: `token ${token.kind}`, dir: "auto" },
        shortened(marked(text), 40) || "∅"),
      el("span", { class: "kind" }, token.kind),
      el("button", { type: "button", class: "close", onclick: act.closeSheet }, "Close")),
    el("div", { class: "why" }, whyOf(view, token, facts)),
    facts.detailed ? choices(view, facts) : null,
    facts.isLater ? el("p", { class: "quiet" }, LATER) : null,
    numbers(view, facts, token));
}
