// One token: what draft and target thought of it, and why it was accepted or not.

import { columnOf, NATS, SHARES } from "./data.js";
import { el, fixed, marked, put, share, shortened, valued, word } from "./dom.js";
import { ruleOf } from "./model.js";

/** All that was recorded at a position. */
export function factsAt(view, position) {
  const { trace, run, state } = view;
  const text = state.text;
  const at = (name) => columnOf(run, text, name)[position];
  const facts = {
    position,
    token: at("token"),
    rank: at("draft_rank"),
    p: run.columns.p_token ? at("p_token") : null,
    q: run.columns.q_token ? at("q_token") : null,
    detailed: trace.top > 0,
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

const NEVER = "the draft can never say this token";

function ordinal(rank) {
  return rank === 0 ? "first choice" : `choice of rank ${rank}`;
}

function whyBonus(view, facts) {
  const end = view.state.shape.kind === "chain"
    ? "Everything that was drafted before it was kept"
    : "The kept tokens before it reached the end of a branch";
  const would = facts.rank === 0 ? "would have been right" : "would have missed it";
  return [end, ", so the target's pass gave this token for free. Nothing was drafted in its ",
    `place; the draft's first choice ${would}.`];
}

function whyGreedy(view, token, facts) {
  const say = (number) => word(view.trace.strings[number]);
  const own = () => say(facts.token);
  const best = facts.best[0];
  if (token.kind === "accepted") {
    return facts.rank === 0
      ? ["The draft's first choice is the target's best token, ", own(), ", so it is kept."]
      : ["The target's best token ", own(), ` is the draft's ${ordinal(facts.rank)}, which stands `,
        "in the tree, so it is kept."];
  }
  const wanted = ["The target's best token is ", own()];
  if (facts.p !== null) wanted.push(` (${valued("p", facts.p)})`);
  const unsaid = facts.q === 0;
  const given = facts.q === null ? "" : ` (${valued("q", facts.q)})`;
  const place = unsaid
    ? `, and ${NEVER}`
    : `, only the draft's ${ordinal(facts.rank)}${given}`;
  if (!best) return [...wanted, place, ". So the drafted token is rejected."];
  const tried = view.cut.blocks[token.block].rejected;
  const said = facts.best.slice(0, tried).flatMap((row, i) => [
    i ? ", " : "",
    say(row.token),
    ` (${valued("q", row.q)}, ${valued("p", row.p)})`,
  ]);
  return [tried > 1 ? "Drafted were " : "The draft said ", ...said, ". ", ...wanted, place,
    tried > 1 ? ". So all of them are rejected and " : ". So the drafted token is rejected and ",
    own(), " takes its place."];
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
  const law = ["The draft's token is drawn from q and kept with probability min(1, p/q)",
    facts.detailed ? `: here ${share(facts.overlap)} of all draws are kept (the overlap). ` : ". "];
  const given = ["Given that ", say(facts.token), " came out, it had been drafted and kept with ",
    `probability min(1, q/p) = ${share(kept)}. `];
  const accepted = token.kind === "accepted";
  const drawn = accepted
    ? ["Drawn from q and kept: ", say(facts.token)]
    : ["Drawn, rejected, replaced: the residual gave ", say(facts.token)];
  const parts = [...law, ...given];
  const most = accepted ? null : mostRejected(facts);
  if (most) {
    const part = `${Math.round((100 * (most.q - most.p)) / (1 - facts.overlap))} %`;
    parts.push("Most often rejected here: ", say(most.token),
      ` (${valued("q", most.q)}, but ${valued("p", most.p)}), ${part} of the rejections.`);
  }
  return [...drawn, ` (seed ${view.state.seed}).`,
    el("details", null, el("summary", null, "How likely was that?"), el("p", null, parts))];
}

function whyPointMass(view, token, facts) {
  const own = word(view.trace.strings[facts.token]);
  if (token.kind === "accepted") {
    return ["The target drew ", own, `, and it is the draft's ${ordinal(facts.rank)}, which `,
      "stands in the tree: kept."];
  }
  return ["The target drew ", own, facts.q === 0
    ? `, and ${NEVER}`
    : `, which is the draft's ${ordinal(facts.rank)} and does not stand in the tree`,
    ": what was drafted is rejected."];
}

/** Why a token is what it is, as a row of nodes. */
export function whyOf(view, token, facts) {
  if (token.kind === "bonus") return whyBonus(view, facts);
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
  if (own) name.append(el("span", { class: "tag" }, "the text's"));
  const rank = row.rank === null ? "–" : row.rank;
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
  const head = ["rank", "token", "q, draft", "p, target"];
  const table = el("table", { class: "choices" },
    el("caption", null, "The draft's best tokens here, beside what the target thinks of them"),
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows.map((row) => {
      const line = rowOf(view, row, facts);
      if (row.token === facts.targetTop) {
        line.children[1].append(el("span", { class: "tag" }, "target's best"));
      }
      return line;
    })));
  return table;
}

function numbers(view, facts, token) {
  const said = facts.q === 0 ? NEVER : facts.rank;
  const rows = [
    ["p, target", facts.p === null ? null : share(facts.p)],
    ["q, draft", facts.q === null ? null : facts.q === 0 ? "0" : share(facts.q)],
    ["rank in the draft", said],
    ["overlap", facts.detailed ? share(facts.overlap) : null],
    ["target entropy", facts.detailed ? `${fixed(facts.targetEntropy)} nats` : null],
    ["draft entropy", facts.detailed ? `${fixed(facts.draftEntropy)} nats` : null],
    ["place", `token ${facts.position + 1}, block ${token.block + 1}`],
    ["token id", view.trace.ids[facts.token]],
  ].filter(([, value]) => value !== null);
  return el("dl", { class: "facts" },
    rows.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

/** The panel beside the text. */
export function drawDetails(view, position) {
  const facts = factsAt(view, position);
  const token = view.cut.tokens[position];
  const text = view.trace.strings[facts.token];
  put("details",
    el("h3", null,
      el("span", { class: `token ${token.kind}`, dir: "auto" },
        shortened(marked(text), 40) || "∅"),
      el("span", { class: "kind" }, token.kind)),
    el("div", { class: "why" }, whyOf(view, token, facts)),
    facts.detailed ? choices(view, facts) : null,
    numbers(view, facts, token));
}
