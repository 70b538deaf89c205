"""The published procedure, implemented literally and slowly: no cache, no packing, one row per
path, one token per step.

It is independent of speclab.record and speclab.tree: a queue of paths, full contexts, plain
softmaxes. The recorder must equal it on every record; `make bench` measures both.
"""

import torch


def full_logits(model, rows: list[list[int]]) -> torch.Tensor:
    """Logits of every position of full contexts of one length, float32 [rows, length, vocab], on
    the CPU.
    """
    tokens = torch.tensor(rows, device=model.device)
    if model.network is not None:
        with torch.inference_mode():
            return (
                model.network(input_ids=tokens, use_cache=False)
                .logits[..., : model.vocab]
                .float()
                .cpu()
            )
    return torch.cat(
        [model.logits(model.forward(row[None], model.cache())).cpu() for row in tokens]
    )


def best_tokens(logits: torch.Tensor, count: int) -> list[int]:
    """The `count` best ids, the lower id first among equals."""
    return sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))[:count]


def entropy(p: torch.Tensor) -> float:
    return float(-(p[p > 0] * p[p > 0].log()).sum())


def draft_tree(draft, context: list[int], depth: int, branches: int, budget: int) -> list[dict]:
    """Breadth-first top-k expansion, one full-context draft pass a node, until `budget` nodes."""
    nodes, queue = [], [{"node": 0, "path": [], "best_path": True}]
    while queue and len(nodes) < budget:
        parent = queue.pop(0)
        if len(parent["path"]) == depth:
            continue
        logits = full_logits(draft, [context + parent["path"]])[0, -1]
        q = logits.softmax(-1)
        for rank, token in enumerate(best_tokens(logits, branches)):
            if len(nodes) == budget:
                break
            nodes.append(
                {
                    "node": len(nodes) + 1,
                    "parent": parent["node"],
                    "depth": len(parent["path"]) + 1,
                    "rank": rank,
                    "token": token,
                    "draft_prob": float(q[token]),
                    "draft_entropy": entropy(q),
                    "path": parent["path"] + [token],
                    "best_path": parent["best_path"] and rank == 0,
                }
            )
            queue.append(nodes[-1])
    return nodes


def score_tree(target, context: list[int], nodes: list[dict]) -> None:
    """Target probability, entropy and rank of every node, leaves' paths as rows of a batch (grouped
    by length).
    """
    inner = {n["parent"] for n in nodes}
    leaves = [n for n in nodes if n["node"] not in inner]
    by_path = {tuple(n["path"]): n for n in nodes}
    for length in {len(leaf["path"]) for leaf in leaves}:
        paths = [leaf["path"] for leaf in leaves if len(leaf["path"]) == length]
        logits = full_logits(target, [context + path for path in paths])
        for path, row in zip(paths, logits, strict=True):
            for i in range(length):
                node, scores = by_path[tuple(path[: i + 1])], row[len(context) - 1 + i]
                p = scores.softmax(-1)
                node |= {
                    "target_prob": float(p[node["token"]]),
                    "target_entropy": entropy(p),
                    "target_rank": best_tokens(scores, len(scores)).index(node["token"]),
                }


def measure(
    target,
    draft,
    prompt: tuple[int, ...],
    max_new_tokens: int,
    stop_ids,
    depth: int = 3,
    branches: int = 2,
    budget: int = 8,
) -> tuple[list[dict], list[int]]:
    """Node records and greedy continuation of one prompt, step by step."""
    context, records, text = list(prompt), [], []
    for position in range(max_new_tokens):
        nodes = draft_tree(draft, context, depth, branches, budget)
        score_tree(target, context, nodes)
        records += [
            {k: v for k, v in n.items() if k != "path"} | {"position": position} for n in nodes
        ]
        token = best_tokens(full_logits(target, [context])[0, -1], 1)[0]
        context.append(token)
        text.append(token)
        if token in stop_ids:
            break
    return records, text
