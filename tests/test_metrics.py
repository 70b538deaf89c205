"""One run under other engines' names: identities between the figures, a run by hand, the real
decoder's counts, and numbers of theirs beside ours (made numbers in each engine's own format).
"""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from speclab import score
from speclab.__main__ import cli, main
from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.ops import metrics, readme
from speclab.profiles import ROOT
from speclab.prompts import encode_prompts, load_prompts
from speclab.record import generate, record_prompt
from speclab.sampling import Sampling
from speclab.tree import chain

SHIPPED = ROOT / "data" / "traces" / "smollm"
TWO = parse_shape("chain:2")


def trace_of(**texts) -> pd.DataFrame:
    """A trace of draft ranks, prompt by prompt; the domain is the first letter of the prompt."""
    return pd.concat(
        [
            pd.DataFrame({"position": range(len(ranks)), "draft_rank": ranks}).assign(
                prompt_id=name, domain=name[0]
            )
            for name, ranks in texts.items()
        ]
    )


def random_trace(prompts=12, seed=0) -> pd.DataFrame:
    """Texts of unequal lengths, with the ratios of a sampled text beside the ranks."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 40, prompts)
    texts = {
        f"{'ab'[i % 2]}{i}": rng.geometric(0.6, n) - 1 for i, n in enumerate(lengths)
    }
    trace = trace_of(**texts)
    return trace.assign(
        p_token=rng.uniform(0.1, 1, len(trace)), q_token=rng.uniform(0, 1, len(trace))
    )


def summary_of(trace, shape="chain:2", rule="greedy"):
    return metrics.summary(metrics.sums_of(trace, parse_shape(shape), rule))


BY_HAND = trace_of(a=[0, 0, 1, 0, 0, 0, 2, 0], b=[3, 3])


def test_a_run_by_hand():
    # a: 2 accepted of 2, 2 of 2, 0 of 2, and 1 of 1 where the text ends; b: 0 of 2, 0 of 1
    found = summary_of(BY_HAND)
    pooled = found["pooled"]
    assert [pooled[name] for name in ("blocks", "accepted", "emitted")] == [6, 5, 10]
    assert [pooled["drafted"], pooled["drafted_whole"], pooled["truncated"]] == [
        10,
        12,
        1,
    ]
    assert pooled["accepted_by_depth"].tolist() == [3, 2]
    assert pooled["blocks_by_accepted"].tolist() == [3, 1, 2]
    assert pooled["mean_accepted_and_bonus"] == 11 / 6
    assert pooled["block_efficiency"] == 10 / 6
    assert pooled["draft_utilisation"] == 5 / 10
    assert pooled["draft_utilisation_whole"] == 5 / 12
    assert pooled["accepted_per_verified"] == (5 + 6) / (12 + 6)
    assert pooled["survival_by_depth"].tolist() == [3 / 6, 2 / 6]
    assert pooled["accept_by_depth"].tolist() == [3 / 6, 2 / 3]


def test_the_mean_of_requests_is_another_number_than_the_pooled_one():
    found = summary_of(BY_HAND)
    requests = found["mean_of_requests"]
    assert requests["mean_accepted"] == (5 / 4 + 0) / 2 != 5 / 6
    assert requests["blocks"] == 3
    # b never reaches depth 2: the mean is a's alone
    assert requests["accept_by_depth"].tolist() == [(3 / 4 + 0) / 2, 2 / 3]
    assert found["by_domain"]["b"]["pooled"]["mean_accepted"] == 0
    assert [row["prompt_id"] for row in found["by_request"]] == ["a", "b"]
    assert metrics.plain(found)["by_request"][1]["accept_by_depth"] == [0, None]


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ("chain:1", "greedy"),
        ("chain:4", "greedy"),
        ("chain:4", "rejection"),
        ("tree:3,2,8", "point-mass"),
    ],
)
def test_identities(shape, rule):
    trace = random_trace()
    sums = metrics.sums_of(trace, parse_shape(shape), rule)
    found = metrics.summary(sums)
    of_requests = found["by_request"]
    for part in (found["pooled"], found["by_domain"]["a"]["pooled"], *of_requests):
        blocks, accepted = part["blocks"], part["accepted"]
        joint, conditional = part["survival_by_depth"], part["accept_by_depth"]
        histogram = part["blocks_by_accepted"]
        assert part["mean_accepted_and_bonus"] == pytest.approx(1 + accepted / blocks)
        assert joint.sum() == pytest.approx(accepted / blocks)
        defined = ~np.isnan(conditional)
        product = np.cumprod(np.where(defined, conditional, 0))
        assert product == pytest.approx(joint)
        assert part["draft_utilisation"] == pytest.approx(accepted / part["drafted"])
        assert histogram.sum() == pytest.approx(blocks)
        assert histogram @ np.arange(len(histogram)) == pytest.approx(accepted)
        cut = part["truncated"] / blocks
        with_bonus = part["mean_accepted_and_bonus"]
        assert part["block_efficiency"] == pytest.approx(with_bonus - cut)
        assert (
            part["drafted"] <= part["drafted_whole"] == parse_shape(shape).size * blocks
        )
    weights = [request["blocks"] for request in of_requests]
    for name in ("mean_accepted", "block_efficiency", "survival_by_depth"):
        values = np.array([request[name] for request in of_requests])
        pooled = np.average(values, axis=0, weights=weights)
        assert found["pooled"][name] == pytest.approx(pooled)
        assert found["mean_of_requests"][name] == pytest.approx(values.mean(axis=0))
    for name, estimator in score.block_estimators().items():
        assert found["pooled"][name] == pytest.approx(np.squeeze(estimator(sums)))


def test_what_a_cut_block_changes():
    """Without a block that the end cuts, the three ways to count agree; with one they do not."""
    whole = summary_of(trace_of(a=[0, 0, 1, 5, 0, 5]))["pooled"]
    assert whole["truncated"] == 0
    assert whole["mean_accepted_and_bonus"] == whole["block_efficiency"]
    cut = summary_of(trace_of(a=[0, 0, 1, 0]))["pooled"]
    assert (cut["truncated"], cut["drafted"], cut["drafted_whole"]) == (1, 3, 4)
    assert cut["mean_accepted_and_bonus"] > cut["block_efficiency"]
    assert cut["draft_utilisation"] > cut["draft_utilisation_whole"]


@pytest.mark.parametrize("new", [16, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", ["chain:3", "tree:3,2,8"])
def test_the_counts_are_the_real_decoders(tiny_pair, shape, new):
    shape, greedy = parse_shape(shape), Sampling()
    prompts = encode_prompts(
        tiny_pair.tokenizer, load_prompts("project", 1), 512, "none"
    )
    for prompt in prompts:
        (text,) = generate(
            tiny_pair.target, [prompt], new, tiny_pair.stop_ids, greedy, 0
        )
        recorded = record_prompt(tiny_pair, prompt, text, chain(1), greedy).trace
        trace = pd.DataFrame({name: list(column) for name, column in recorded.items()})
        trace = trace.assign(prompt_id=prompt.prompt_id, domain=prompt.domain)
        found = metrics.summary(metrics.sums_of(trace, shape, "greedy"))["pooled"]
        steps = decode_prompt(tiny_pair, prompt, "greedy", shape, greedy, new).steps
        accepted = np.array([step.accepted for step in steps])
        depths = np.arange(1, shape.tree.max_depth + 1)
        by_depth = (accepted[:, None] >= depths).sum(0)
        assert found["blocks"] == len(steps)
        assert found["accepted_by_depth"].tolist() == by_depth.tolist()
        assert found["emitted"] == len(text)
        assert found["truncated"] == sum(step.kind == "cut" for step in steps)
        drafted = sum(step.drafted for step in steps)
        if (
            len(text) == new
        ):  # a text that stops by itself: the decoder drafts behind it
            assert found["drafted"] == drafted
        assert found["drafted"] <= drafted <= found["drafted_whole"]


# ---- names ---------------------------------------------------------------------------------------


def test_every_name_is_a_figure():
    known = summary_of(BY_HAND)["pooled"]
    for group in metrics.groups():
        for name, figure in group["names"].items():
            value = metrics.value_of(known, figure)
            assert (value is None) == (figure is None), (group["engine"], name, figure)
        assert set(group) <= {
            *("engine", "where", "of", "source", "names", "note", "read", "mark")
        }
        assert group["of"] in ("pooled", "interval", "request")
        assert ("mark" in group) == ("read" in group)


def test_the_glossary_has_every_name():
    text = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
    table = readme.engines_table()
    assert readme.filled(text, {"engines": table}) == text, "call `make readme`"
    assert all(group["source"] in text for group in metrics.groups())


def test_their_names_take_the_pooled_number_or_the_mean_of_requests():
    named = metrics.under_their_names(summary_of(BY_HAND))
    log = named["vLLM"]["log line `SpecDecoding metrics:` (interval)"]
    assert log["Mean acceptance length"] == 11 / 6
    assert log["Avg Draft acceptance rate"] == pytest.approx(100 * 5 / 12)
    aiperf = named["AIPerf"]
    tag = "spec_decode_acceptance_length"
    assert aiperf["profile_export_aiperf.json (request)"][tag] == 1 + 5 / 8
    assert (
        aiperf["profile_export_aiperf.json (pooled)"][
            "spec_decode_token_weighted_acceptance_length"
        ]
        == 11 / 6
    )
    counters = named["vLLM"]["counters of /metrics (pooled)"]
    assert counters["vllm:spec_decode_num_drafts"] == 6
    assert counters["vllm:spec_decode_num_draft_tokens"] == 12
    assert named["llama.cpp"]["server log, `statistics` (pooled)"]["#acc drafts"] == 3
    assert named["transformers"]["nowhere (request)"] == {}


@pytest.mark.parametrize(
    ("temperature", "shape", "rule"),
    [
        (0.0, "chain:4", "greedy"),
        (0.0, "tree:3,2", "greedy"),
        (0.7, "chain:4", "rejection"),
        (1.0, "tree:3,2", "point-mass"),
    ],
)
def test_the_rule_goes_with_the_temperature(temperature, shape, rule):
    assert metrics.rule_for(parse_shape(shape), temperature) == rule


# ---- beside --------------------------------------------------------------------------------------

VLLM = (
    "(APIServer pid=1) INFO 05-01 14:24:50 [metrics.py:101] SpecDecoding metrics: "
    "Mean acceptance length: 2.50, Accepted throughput: 8.90 tokens/s, Drafted throughput: "
    "12.50 tokens/s, Accepted: 60 tokens, Drafted: 80 tokens, Per-position acceptance rate: "
    "0.900, 0.600, Avg Draft acceptance rate: 75.0%"
)
COUNTERS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 10.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 8e+01
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="1"} 24.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="0"} 36.0
"""
LLAMA = """\
0.06.89 I slot print_timing: id  1 | task 0 | draft acceptance = 0.75000 (   60 accepted /    80 \
generated), mean acceptance length =  2.50, acceptance rate per position = (0.900, 0.600)
0.06.89 I statistics     draft-eagle3: #calls(b,g,a) =    1     40     40, #gen drafts =     40, \
#acc drafts =    36, #gen tokens =     80, #acc tokens =    60, #mean acc len = 2.50, \
#acc rate/pos = (0.900, 0.600), dur(b,g,a) = 0.005, 325.555, 0.114 ms
"""
AIPERF = {
    "schema_version": "1.0",
    "spec_decode_acceptance_length": {"unit": "ratio", "avg": 2.25, "p50": 2.2},
    "spec_decode_draft_acceptance_rate": {"unit": "%", "avg": 62.5},
    "total_spec_decode_steps": {"unit": "count", "avg": 40},
    "total_accepted_draft_tokens": {"unit": "tokens", "avg": 60},
    "total_draft_tokens": {"unit": "tokens", "avg": 80},
    "pooled_spec_decode_acceptance_histogram": {"0": 4, "2": 24, "1": 12},
}
AIPERF_CSV = """\
Metric,avg,min,max,p50
Acceptance Length (ratio),2.25,1.00,3.00,2.20
Draft Acceptance Rate (%),62.50,0.00,100.00,60.00

Metric,Value
Token-Weighted Acceptance Length (ratio),2.50
"""
SPEC_BENCH = "\n".join(
    json.dumps({"question_id": i, "category": "qa", "choices": [{"accept_lengths": a}]})
    for i, a in enumerate([[3, 3, 1], [2]])
)


def beside(tmp_path, text) -> list[dict]:
    """What `--beside` says of a file with this text, for the run by hand."""
    file = tmp_path / "theirs"
    file.write_text(text, encoding="utf-8")
    found = summary_of(BY_HAND)
    return [metrics.set_beside(group, found) for group in metrics.read_beside(file)]


def test_a_vllm_log_line(tmp_path):
    (found,) = beside(
        tmp_path, f"noise\n{VLLM.replace('2.50', '9.00')}\n{VLLM}\nmore\n"
    )
    assert (found["engine"], found["of"]) == ("vLLM", "interval")
    assert found["read"] == "the last of 2 such lines" and found["not_in_file"] == []
    rows = found["figures"]
    assert rows["Mean acceptance length"] == {
        "is": "mean_accepted_and_bonus",
        "theirs": 2.5,
        "ours": 11 / 6,
    }
    assert rows["Accepted"]["theirs"] == 60 and rows["Drafted"]["theirs"] == 80
    assert rows["Per-position acceptance rate"]["theirs"].tolist() == [0.9, 0.6]
    assert rows["Avg Draft acceptance rate"]["theirs"] == 75
    assert rows["Avg Draft acceptance rate"]["ours"] == pytest.approx(100 * 5 / 12)


def test_vllm_counters_and_what_follows_from_them(tmp_path):
    (found,) = beside(tmp_path, COUNTERS)
    rows = found["figures"]
    assert rows["vllm:spec_decode_num_drafts"]["theirs"] == 40
    by_position = rows["vllm:spec_decode_num_accepted_tokens_per_pos"]["theirs"]
    assert by_position.tolist() == [36, 24]
    assert rows["mean_accepted_and_bonus"]["theirs"] == 2.5
    assert rows["draft_utilisation_whole"]["theirs"] == 0.75
    assert rows["survival_by_depth"]["theirs"].tolist() == [0.9, 0.6]
    assert rows["accept_by_depth"]["theirs"] == pytest.approx([0.9, 24 / 36])
    assert "block_efficiency" not in rows  # their emitted tokens are not known


def test_a_llama_cpp_log(tmp_path):
    request, whole = beside(tmp_path, LLAMA)
    assert (request["of"], whole["of"]) == ("request", "pooled")
    rows = request["figures"]
    assert rows["draft acceptance"]["theirs"] == 0.75
    assert rows["accepted"]["theirs"] == 60 and rows["generated"]["theirs"] == 80
    assert rows["mean acceptance length"] == {
        "is": "mean_accepted_and_bonus",
        "theirs": 2.5,
        "ours": 1 + 5 / 8,
    }
    assert rows["acceptance rate per position"]["theirs"].tolist() == [0.9, 0.6]
    assert request["not_in_file"] == ["draft acceptance rate", "mean len"]
    rows = whole["figures"]
    assert rows["#gen drafts"]["theirs"] == 40 and rows["#acc drafts"]["theirs"] == 36
    assert rows["#mean acc len"]["ours"] == 11 / 6
    assert rows["draft_utilisation"]["theirs"] == 0.75


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (
            "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)",
            "draft acceptance rate",
            0.57576,
        ),
        (
            "draft acceptance = 0.50000 (    1 accepted /     2 generated), mean len =  1.50",
            "mean len",
            1.5,
        ),
        ("     acc per pos = (0.500)", "acc per pos", 0.5),
        (
            "#token: 5, accept len: 2.50, accept rate: 0.70, cuda graph: True",
            "accept len",
            2.5,
        ),
        (
            "llamacpp:spec_decode_num_drafts_total 7",
            "llamacpp:spec_decode_num_drafts",
            7,
        ),
    ],
)
def test_other_lines(tmp_path, line, name, value):
    (found,) = beside(tmp_path, line)
    assert found["figures"][name]["theirs"] == value


def test_an_aiperf_export(tmp_path):
    request, pooled = beside(tmp_path, json.dumps(AIPERF))
    rate = request["figures"]["spec_decode_draft_acceptance_rate"]
    assert rate["theirs"] == 62.5
    assert rate["ours"] == pytest.approx(100 * (5 / 8 + 0) / 2)
    assert "spec_decode_steps" in request["not_in_file"]
    rows = pooled["figures"]
    histogram = rows["pooled_spec_decode_acceptance_histogram"]["theirs"]
    assert histogram.tolist() == [4, 12, 24]
    assert rows["mean_accepted"] == {
        "is": "mean_accepted",
        "theirs": 1.5,
        "ours": 5 / 6,
    }
    request, pooled = beside(tmp_path, AIPERF_CSV)
    assert request["figures"]["Acceptance Length (ratio)"]["theirs"] == 2.25
    token_weighted = pooled["figures"]["Token-Weighted Acceptance Length (ratio)"]
    assert (token_weighted["theirs"], token_weighted["ours"]) == (2.5, 11 / 6)


def test_a_spec_bench_file(tmp_path):
    (found,) = beside(tmp_path, SPEC_BENCH + "\n")
    assert found["figures"] == {
        "#Mean accepted tokens": {
            "is": "block_efficiency",
            "theirs": 9 / 4,
            "ours": 10 / 6,
        }
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "of no known kind; allowed are files that hold"),
        ("Mean acceptance length: 2.5", "of no known kind"),
        ("SpecDecoding metrics: Mean acc", "no number behind any of the names"),
        ("draft acceptance = nan", "no number behind any of the names"),
        ("# TYPE vllm:spec_decode_num_drafts counter", "no number behind"),
        (json.dumps(AIPERF)[:-9], "looks like AIPerf, profile_export_aiperf.json, but"),
        ('["spec_decode_acceptance_length"]', "but is broken"),
        ('{"spec_decode_acceptance_length": [1]}', "no number behind"),
        ("Acceptance Length (ratio),much", "but is broken: ValueError"),
        ('{"accept_lengths": [1]}', "Spec-Bench, evaluation/speed.py"),
        ('{"choices": [{"accept_lengths": []}]}', "no number behind"),
        ('{"choices": [{"accept_lengths": ["a"]}]}', "but is broken: ValueError"),
        (SPEC_BENCH + '\n{"choi', "but is broken: JSONDecodeError"),
        ('{"spec_decode_acceptance_length": ' + "[" * 99_999, "broken: RecursionError"),
    ],
)
def test_a_file_that_is_none_or_broken_is_one_line(tmp_path, capsys, text, words):
    file = tmp_path / "theirs"
    file.write_text(text, encoding="utf-8")
    run = str(SHIPPED / "greedy")
    assert main(["metrics", run, "--beside", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(file) in said and words in said


# ---- the command line ----------------------------------------------------------------------------


def test_the_verb_prints_json(tmp_path):
    file = tmp_path / "vllm.log"
    file.write_text(VLLM, encoding="utf-8")
    arguments = ["metrics", str(SHIPPED / "greedy"), "--shape", "chain:3"]
    done = CliRunner().invoke(cli, [*arguments, "--beside", str(file)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rule"], found["temperature"]) == ("greedy", 0)
    assert found["says"]["exact"].startswith("exact")
    assert set(found["by_domain"]) == {"code", "math", "reasoning", "chat"}
    assert len(found["by_request"]) == 200
    pooled = found["pooled"]
    by_hand = 1 + pooled["accepted"] / pooled["blocks"]
    assert pooled["mean_accepted_and_bonus"] == pytest.approx(by_hand, abs=1e-6)
    assert (
        sum(part["pooled"]["blocks"] for part in found["by_domain"].values())
        == (pooled["blocks"])
    )
    (theirs,) = found["beside"]
    length = theirs["figures"]["Mean acceptance length"]
    assert length["ours"] == pooled["mean_accepted_and_bonus"]


def test_a_sampled_run_gives_an_expectation_or_exact_counts():
    run = str(SHIPPED / "sampled")
    drawn = json.loads(CliRunner().invoke(cli, ["metrics", run]).stdout)
    assert drawn["rule"] == "rejection" and "expectation" in drawn["says"]["exact"]
    assert not float(drawn["pooled"]["accepted"]).is_integer()
    best = json.loads(
        CliRunner().invoke(cli, ["metrics", run, "--rule", "point-mass"]).stdout
    )
    assert best["says"]["exact"].startswith("exact for these sampled texts")
    assert float(best["pooled"]["accepted"]).is_integer()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{nowhere}"], "no manifest.json, so no finished run"),
        (["{run}", "--shape", "chain:0"], "gamma=0: allowed are"),
        (["{run}", "--shape", "four"], "shape='four': allowed are"),
        (["{run}", "--shape", "dynamic:2,2,4"], "not plain or dynamic shapes"),
        (["{run}", "--shape", "plain"], "not plain or dynamic shapes"),
        (["{run}", "--rule", "ratio"], "rule='ratio': allowed are greedy"),
        (["{run}", "--rule", "rejection"], "rule='rejection' at temperature 0.0"),
        (["{run}", "--beside", "{nowhere}"], "No such file"),
        ([], "Missing argument 'RUN'"),
    ],
)
def test_what_does_not_go_together_is_one_line(tmp_path, capsys, arguments, words):
    places = {"{run}": str(SHIPPED / "greedy"), "{nowhere}": str(tmp_path / "none")}
    given = [places.get(argument, argument) for argument in arguments]
    assert main(["metrics", *given]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and words in said
