"""Prompt lookup equals a literal search and a literal copy, token by token."""

from hypothesis import given
from hypothesis import strategies as st

from speclab.copying import copied, replayed

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def literal_match(text, longest):
    """(matched, position) of a text's last tokens, by comparing slices, the most recent first."""
    for length in range(min(longest, len(text) - 1), 0, -1):
        for place in range(len(text) - 1, length - 1, -1):
            if text[place - length : place] == text[-length:]:
                return length, place
    return 0, 0


def literal_copy(text, place, most):
    """A copy that is made token by token."""
    whole = list(text)
    for step in range(most):
        whole.append(whole[place + step])
    return whole[len(text) :]


@given(TEXTS, st.integers(1, 9), st.integers(1, 20))
def test_a_copy_goes_on_in_what_it_has_copied(text, least, most):
    matched, place = literal_match(text, 8)
    wanted = literal_copy(text, place, most) if matched >= least else []
    assert copied(text, least, most).tolist() == wanted


@given(TEXTS, TEXTS, st.integers(1, 9), st.integers(1, 20))
def test_replayed_are_the_tokens_that_a_copy_gets_right(prompt, text, longest, most):
    whole, rows = [*prompt, *text], []
    for start in range(len(prompt), len(whole)):
        matched, place = literal_match(whole[:start], longest)
        copy = literal_copy(whole[:start], place, most) if matched else []
        right = [a == b for a, b in zip(copy, whole[start:], strict=False)]
        accepted = [*right, False].index(False)
        rows.append((matched, accepted))
    found = replayed(prompt, text, longest, most)
    assert list(zip(*(each.tolist() for each in found), strict=True)) == rows
