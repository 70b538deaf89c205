"""A study kit for speculative decoding. It has a flat core and six folders.

core      shapes, trees, verification, sampling, drafting, decoding, recording, replay, scores,
          statistics, estimates, costs
models    networks: their folders, how they are loaded, their passes, and the cost of a pass
show      what a reader sees: figures, pictures, the start of a notebook
analysis  what several notebooks need: texts, choosing a setting, stop rules, prompt sets, power
drafts    other drafts: quantised copies, and the trained drafts that come with the kit
explore   a page that explores a recorded run in a browser, without a kernel
ops       where and how the kit runs: reproduce, report, doctor, workers, Kaggle and Colab

`python -m speclab --help` lists the commands. README.md names the file for each kind of change.
"""

if not __debug__:
    raise ImportError(
        "speclab needs its assertions: start Python without -O and without PYTHONOPTIMIZE"
    )
