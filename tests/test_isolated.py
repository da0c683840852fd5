"""Laws of `isolated`: whatever happens to the child fails the test with the child's words, never pytest."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import pytest

Isolated = Callable[..., object]


def _double(number: int) -> int:
    return 2 * number


def _raise() -> None:
    raise ValueError("told by the child")


def _abort() -> None:
    os.write(2, b"GGML_ASSERT(false) failed\n")
    ctypes.CDLL(None).abort()


def _leave() -> None:
    os._exit(7)


def _hang() -> None:
    time.sleep(1000)


def test_the_result_comes_back(isolated: Isolated) -> None:
    assert isolated(_double, 21) == 42


def test_the_child_is_another_process(isolated: Isolated) -> None:
    assert isolated(os_getpid) != os.getpid()


def os_getpid() -> int:
    return os.getpid()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_raise, "ValueError: told by the child"),
        (_abort, r"killed by SIGABRT\n(.|\n)*GGML_ASSERT\(false\) failed"),
        (_leave, "ended with status 7"),
    ],
    ids=["exception", "abort", "exit"],
)
def test_a_death_fails_the_test_with_its_words(isolated: Isolated, function: Callable[[], None], said: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=said):
        isolated(function)


def test_a_hang_fails_the_test_and_shows_where(isolated: Isolated) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"hung for more than 2 s(.|\n)*in _hang"):
        isolated(_hang, timeout_s=2)


def test_a_script_gives_its_output(isolated_script: Callable[..., str]) -> None:
    assert isolated_script("import sys; print(sys.argv[1])", "word") == "word\n"
