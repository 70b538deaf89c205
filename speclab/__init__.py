"""The study kit for speculative decoding: a flat core and seven rooms.

core      trees, verification, sampling; drafting, decoding; recording, replay, scores, statistics
models    the only room that knows networks: loading, passes, what a pass costs
show      what a reader sees: estimates, figures, pictures, the start of a notebook
analysis  what several notebooks need: texts, choosing a setting, stopping, timing, power
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
