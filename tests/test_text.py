"""Text comes out whole: characters and stop strings that straddle tokens, and which tokens the text holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from pyspec.text import TextStream


def push_all(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> tuple[TextStream, list[str]]:
    """The stream after all pieces (or the stop), and what was taken after each."""
    stream = TextStream(pieces.__getitem__, stop)
    taken = []
    for token in range(len(pieces)):
        stopped = stream.push(token)
        taken.append(stream.take())
        if stopped:
            break
    stream.finish()
    taken.append(stream.take())
    return stream, taken


@pytest.mark.parametrize(
    ("pieces", "taken"),
    [
        pytest.param([b"a", b"b"], ["a", "b", ""], id="ascii"),
        pytest.param([b"\xc3", b"\xa9"], ["", "é", ""], id="two-bytes"),
        pytest.param([b"x\xe2\x82", b"\xacy"], ["x", "€y", ""], id="three-bytes"),
        pytest.param([b"\xf0", b"\x9f", b"\x98", b"\x80!"], ["", "", "", "😀!", ""], id="four-bytes"),
        pytest.param([b"a", b"", b"b"], ["a", "", "b", ""], id="token-without-text"),
        pytest.param([b"\xff", b"a"], ["\ufffd", "a", ""], id="malformed"),
        pytest.param([b"\xc3", b"a"], ["", "\ufffda", ""], id="broken-character"),
        pytest.param([b"a\xc3"], ["a", "\ufffd"], id="ends-inside-a-character"),
    ],
)
def test_a_character_is_shown_when_its_last_byte_has_come(pieces: list[bytes], taken: list[str]):
    assert push_all(pieces)[1] == taken


@pytest.mark.parametrize(
    ("pieces", "stop", "text", "n_tokens"),
    [
        pytest.param([b"one", b"STOP", b"two"], ["STOP"], "one", 1, id="one-token"),
        pytest.param([b"one", b"ST", b"OP"], ["STOP"], "one", 1, id="two-tokens"),
        pytest.param([b"one", b"S", b"T", b"O", b"P"], ["STOP"], "one", 1, id="token-by-token"),
        pytest.param([b"oneS", b"TOP"], ["STOP"], "one", 0, id="begins-inside-a-token"),
        pytest.param([b"one", b"STOPtwo"], ["STOP"], "one", 1, id="ends-inside-a-token"),
        pytest.param([b"STOP"], ["STOP"], "", 0, id="nothing-before"),
        pytest.param([b"SSTOP"], ["STOP"], "S", 0, id="false-start"),
        pytest.param([b"S", b"S", b"TOP"], ["STOP"], "S", 1, id="false-start-in-tokens"),
        pytest.param([b"aab", b"aac"], ["aac"], "aab", 1, id="overlap"),
        pytest.param([b"ab", b"ab", b"ac"], ["abac"], "ab", 1, id="overlap-of-the-stop-with-itself"),
        pytest.param([b"x", b"\n", b"\n", b"y"], ["\n\n"], "x", 1, id="newlines"),
        pytest.param([b"abcd"], ["d", "bc"], "a", 0, id="the-earliest-of-two"),
        pytest.param([b"ab", b"cd"], ["cd", "abcd"], "", 0, id="the-earliest-begins-earlier"),
        pytest.param([b"caf", b"\xc3", b"\xa9"], ["é"], "caf", 1, id="character-of-two-tokens"),
        pytest.param([b"a", b"\xe2\x82", b"\xac", b"b"], ["€b"], "a", 1, id="begins-with-half-a-character"),
    ],
)
def test_a_stop_string_ends_the_text_before_it_wherever_the_tokens_lie(
    pieces: list[bytes], stop: list[str], text: str, n_tokens: int
):
    stream, taken = push_all(pieces, stop)
    assert stream.stopped_by in stop
    assert (stream.text, "".join(taken), stream.n_tokens) == (text, text, n_tokens)


@pytest.mark.parametrize(
    ("pieces", "stop"),
    [
        pytest.param([b"one", b"STO"], ["STOP"], id="unfinished"),
        pytest.param([b"S", b"T", b"O", b"p"], ["STOP"], id="other-case"),
        pytest.param([b"STO", b"STO", b"S"], ["STOP"], id="again-and-again"),
    ],
)
def test_text_without_a_whole_stop_string_is_complete(pieces: list[bytes], stop: list[str]):
    stream, taken = push_all(pieces, stop)
    assert stream.stopped_by is None
    assert stream.text == "".join(taken) == b"".join(pieces).decode()
    assert stream.n_tokens == len(pieces)


def test_what_may_begin_a_stop_string_is_held_back():
    _, taken = push_all([b"one\n", b"\nt", b"wo"], ["\n\n\n"])
    assert taken == ["one", "\n\nt", "wo", ""]


ALPHABET = "ab"
STOPS = ["".join(s) for n in (1, 2, 3) for s in itertools.product(ALPHABET, repeat=n)]


@pytest.mark.parametrize("stop", STOPS)
def test_the_text_ends_at_the_first_stop_for_every_split_into_tokens(stop: str):
    """All texts of six letters, split into tokens of one, two or three."""
    for letters in itertools.product(ALPHABET, repeat=6):
        whole = "".join(letters)
        expected = whole.split(stop)[0]
        for width in (1, 2, 3):
            pieces = [whole[i : i + width].encode() for i in range(0, 6, width)]
            stream, taken = push_all(pieces, [stop])
            assert stream.text == "".join(taken) == expected
            assert stream.n_tokens == (len(expected) // width if stop in whole else len(pieces))


def test_the_text_may_be_read_before_it_is_finished():
    stream = TextStream([b"one ", b"two"].__getitem__)
    stream.push(0)
    assert stream.text == "one "
