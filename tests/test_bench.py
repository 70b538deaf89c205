"""The benchmark: a method that writes another text is noticed."""

import bench
from bench import PLAIN, measure
from test_record import prompts_of
from toy import toy_pair

from speclab.shapes import Shape
from speclab.tree import chain


def test_a_text_that_differs_is_counted():
    pair, prompts = toy_pair(stop=-1), prompts_of([1, 2, 3], [5, 6])

    def wrong(pair, prompt, new):
        made = bench.own_plain(pair, prompt, new)
        return bench.Made((*made.ids[:-1], 99), None, made.time_s)

    own = "own chain:2"
    asked = bench.own(Shape(chain(2)))
    methods = {PLAIN: bench.own_plain, own: asked, "wrong": wrong}
    found = measure(pair, prompts, methods, 12, 2)
    assert len(found) == 12
    same = found.groupby("method").same.mean().to_dict()
    assert same == {PLAIN: 1, own: 1, "wrong": 0}
