"""Which draft is best? Every candidate on the target's own text: its size, the cost of a pass, its
acceptance, and the speed that follows.

`candidates` makes drafts and records them, `comparison` compares them. All are judged on the same
texts of the same target, so that differences between them are paired by prompt.
"""
