"""Which draft? Every candidate on the target's own text: what it weighs, what a pass costs, what is
accepted, what speed that makes.

`candidates` makes drafts and records them, `comparison` compares them. All are judged on the same
texts of the same target, so that differences between them are paired, prompt by prompt.
"""
