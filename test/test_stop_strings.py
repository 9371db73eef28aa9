"""Where a text ends that is still being said."""

import pytest
from oxygen_ros.stop_strings import StopStrings, ends_at


@pytest.mark.parametrize(("text", "settled", "end"), [
    ("pick", 4, None),
    ("pick;", 4, None),          # perhaps the beginning of ";\nAction"
    ("pick;\nAct", 4, None),
    ("pick;\nActs", 10, None),   # it was not
    ("pick;\nAction: ", 4, 4),
    ("a END b;\nAction", 2, 2),  # the first of several
    ("EN", 0, None),
    ("", 0, None),
])
def test_settled_and_end(text, settled, end):
    stop = StopStrings([";\nAction", "END", ""])
    assert (stop.settled(text), stop.find(text)) == (settled, end)


def test_nothing_ends_where_no_string_is_given():
    assert ends_at((), tokenizer=None) is None
    assert StopStrings([]).find("any;") is None and StopStrings([]).settled("any;") == 4


class Letters:
    """Each id is a letter, which is all that is asked of a tokenizer here."""

    def decode(self, ids):
        return "".join(map(chr, ids))


def test_a_string_may_span_tokens():
    ends = ends_at(["END"], Letters())
    said, answers = [], []
    for letter in b"THE ENDS":
        said.append(letter)
        answers.append(ends(said))
    assert answers == [False] * 6 + [True, True]
