"""The study kit for speculative decoding: a flat core and seven rooms.

core      shapes, trees, verification, sampling; drafting, decoding; recording, replay, scores,
          statistics, estimates, costs
models    the only room that knows networks: their folders, loading, passes, what a pass costs
show      what a reader sees: figures, pictures, the start of a notebook
analysis  what several notebooks need: texts, choosing a setting, stopping, other prompts, power
studies   what one notebook needs, under the notebook's own name
drafts    better drafts: quantised copies, trained drafts of the kit
explore   the page to explore a recorded run by hand, in a browser without a kernel
ops       where and how it runs: reproduce, report, doctor, workers, Kaggle and Colab

`python -m speclab --help` lists the verbs, README.md says what to change where.
"""

if not __debug__:
    raise ImportError(
        "speclab needs its checks: start Python without -O and without PYTHONOPTIMIZE"
    )
