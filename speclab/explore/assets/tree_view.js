// The draft of one block as a tree, as notebook 01 draws it, and the token that follows.

import { columnOf, draftedOf, SHARES } from "./data.js";
import { marked, plural, put, share, shortened, svg, word } from "./dom.js";
import { ruleOf, treeOf } from "./model.js";
import { chain, childrenOf, staticTree } from "./replay.js";

const BOX = { width: 116, height: 40, across: 152, down: 50, top: 30, left: 6 };

/** The recorded tree's number of a node, by its ranks from the root: "0,1,0" -> 7. */
function recordedNumbers(shape) {
  const tree = staticTree(...shape);
  const paths = [""];
  const numbers = new Map();
  for (let node = 1; node < tree.parent.length; node++) {
    const above = paths[tree.parent[node]];
    paths.push(above ? `${above},${tree.rank[node]}` : `${tree.rank[node]}`);
    numbers.set(paths[node], node);
  }
  const firstLevel = tree.depth.filter((depth) => depth === 1).length;
  return { numbers, firstLevel, deeper: tree.parent.length - 1 - firstLevel };
}

/** What is known of a drafted node: its token, q and p; null where it was not recorded. */
function recordedNode(view, start, path, onText) {
  const { trace, run, state } = view;
  const depth = path.length;
  const rank = path[depth - 1];
  const position = start + depth - 1;
  const row = run.first[state.text] + position;
  const isListed = onText && (depth === 1 || !run.ahead); // a head's list is of a block's first token
  if (isListed && rank < trace.top && position < run.length[state.text]) {
    const token = run.columns.top_draft_ids[row * trace.top + rank];
    if (token >= trace.ids.length) return null;
    const q = run.columns.top_draft_q[row * trace.top + rank] / SHARES;
    const p = run.columns.top_draft_p[row * trace.top + rank] / SHARES;
    return { token, q, p };
  }
  if (!run.tree || !run.columns.node_token || depth < 2) return null;
  const { numbers, firstLevel, deeper } = recordedNumbers(run.tree);
  const node = numbers.get(path.join(","));
  if (node === undefined) return null;
  const at = (run.first[state.text] + start) * deeper + node - firstLevel - 1;
  return {
    token: run.columns.node_token[at],
    q: run.columns.node_q[at] / SHARES,
    p: run.columns.node_p[at] / SHARES,
  };
}

/** The text's own token at a place of a block, from 0; q undefined where it was not recorded. */
function ownNode({ run, state }, block, place) {
  const at = (name) => columnOf(run, state.text, name)[block.start + place];
  if (!run.columns.p_token) return { token: at("token") };
  const q = draftedOf(run, state.text, "q_token")(block.start, place);
  return { token: at("token"), q, p: at("p_token") };
}

/** Nodes of a block's draft: parent, children, depth, kind, and token, q and p where known. */
export function nodesOf(view, block) {
  const { run, state } = view;
  const drawn = ruleOf(run, state.shape) === "rejection" || block.isCopied;
  const tree = state.shape.kind === "lookup" ? chain(block.drafted) : treeOf(state.shape);
  const children = childrenOf(tree);
  const rankOf = draftedOf(run, state.text, "draft_rank");
  const nodes = [{ depth: 0, kind: "context", children: [], path: [], onText: true }];
  const numbers = [0];
  for (let node = 1; node < tree.parent.length; node++) {
    const depth = tree.depth[node];
    if (!block.isCopied && depth > block.levels) break;
    const above = nodes[numbers[tree.parent[node]]];
    const path = [...above.path, tree.rank[node]];
    const fits = drawn
      ? depth <= block.accepted
      : rankOf(block.start, depth - 1) === tree.rank[node];
    const onText = above.onText && fits;
    // of a drawn chain only the tokens that were kept are known
    const known = (drawn ? null : recordedNode(view, block.start, path, above.onText))
      ?? (onText ? ownNode(view, block, depth - 1) : null);
    const kind = onText ? "accepted" : "rejected";
    numbers.push(nodes.length);
    above.children.push(nodes.length);
    nodes.push({ depth, kind, path, onText, children: [], ...known });
  }
  if (block.ending) {
    const last = nodes.findLastIndex((node) => node.onText);
    nodes[last].children.push(nodes.length);
    nodes.push({ depth: nodes[last].depth + 1, kind: block.ending, path: [], onText: false,
      children: [], ...ownNode(view, block, block.accepted) });
  }
  return nodes;
}

/** Rows of the nodes: leaves one apart, a parent in the middle of its children. */
function placed(nodes) {
  let leaves = 0;
  const visit = (node) => {
    const below = node.children.map((child) => visit(nodes[child]));
    node.row = below.length ? (below[0] + below[below.length - 1]) / 2 : leaves++;
    return node.row;
  };
  visit(nodes[0]);
  return leaves;
}

function labelOf(view, block, node) {
  if (node.kind === "context") {
    const tokens = columnOf(view.run, view.state.text, "token");
    let before = "";
    for (let i = Math.max(0, block.start - 6); i < block.start; i++) {
      before += view.trace.strings[tokens[i]];
    }
    const letters = [...marked(before)];
    return letters.length > 13 ? `…${letters.slice(-12).join("")}` : letters.join("") || "(prompt)";
  }
  if (node.token === undefined) return "?";
  return shortened(marked(view.trace.strings[node.token]), 13) || "∅";
}

function box(view, block, node) {
  const x = BOX.left + node.depth * BOX.across;
  const y = BOX.top + node.row * BOX.down;
  const known = node.q !== undefined;
  const numbers = known ? `q ${share(node.q)} · p ${share(node.p)}` : "";
  const middle = { x: x + BOX.width / 2, "text-anchor": "middle" };
  return svg("g", { class: `node ${node.kind}${node.token === undefined ? " unknown" : ""}` },
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 6 }),
    svg("text", { ...middle, y: y + (numbers ? 17 : 25), class: "name" },
      labelOf(view, block, node)),
    numbers && svg("text", { ...middle, y: y + 32, class: "numbers" }, numbers));
}

function edge(above, node) {
  const x1 = BOX.left + above.depth * BOX.across + BOX.width;
  const x2 = BOX.left + node.depth * BOX.across;
  const y1 = BOX.top + above.row * BOX.down + BOX.height / 2;
  const y2 = BOX.top + node.row * BOX.down + BOX.height / 2;
  const middle = (x1 + x2) / 2;
  const d = `M${x1},${y1}C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
  return svg("path", { d, class: `edge ${node.kind}` });
}

function heading(depth) {
  const x = BOX.left + depth * BOX.across + BOX.width / 2;
  const name = depth ? `depth ${depth}` : "context";
  return svg("text", { x, y: 16, "text-anchor": "middle", class: "depth" }, name);
}

function sentenceOf(view, block) {
  const shape = view.state.shape.kind === "tree" ? "in a tree" : "in a row";
  const proposes = block.isCopied ? "A copy from the text so far proposes" : "The draft proposes";
  const parts = [`${proposes} ${plural(block.drafted, "token")} ${shape}. `,
    `The target keeps ${block.accepted || "none"}`];
  if (!block.ending) return [...parts, ", and the text ends."];
  const tokens = columnOf(view.run, view.state.text, "token");
  const token = word(view.trace.strings[tokens[block.start + block.accepted]]);
  if (block.ending === "bonus") return [...parts, " and adds ", token, " as a bonus."];
  return [...parts, " and writes ", token, " in place of the rejected ",
    block.rejected === 1 ? "token." : "tokens."];
}

export function drawTree(view, number) {
  const block = view.cut.blocks[number];
  const nodes = nodesOf(view, block);
  const rows = placed(nodes);
  const deepest = Math.max(...nodes.map((node) => node.depth));
  const width = BOX.left * 2 + deepest * BOX.across + BOX.width;
  const height = BOX.top + rows * BOX.down;
  const edges = nodes.flatMap((node) => node.children.map((child) => edge(node, nodes[child])));
  const headings = Array.from({ length: deepest + 1 }, (_, depth) => heading(depth));
  const sentence = sentenceOf(view, block);
  const label = sentence.map((part) => part.textContent ?? part).join("");
  put("tree-name", `Block ${number + 1} of ${view.cut.blocks.length}`);
  put("tree-words", sentence);
  put("tree-picture",
    svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": label },
    edges, headings, nodes.map((node) => box(view, block, node))));
  const drawn = ruleOf(view.run, view.state.shape) === "rejection";
  const unknown = nodes.some((node) => node.token === undefined && node.kind === "rejected");
  let why = "A question mark is a drafted token that the run did not record.";
  if (drawn) {
    why = "A question mark is a token that was drawn from q and rejected. The text does not show it.";
  }
  if (block.isCopied) why = "A question mark is a copied token that the target did not keep.";
  put("tree-note", unknown ? why : []);
}
