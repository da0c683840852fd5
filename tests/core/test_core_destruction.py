"""Laws of the end: objects may go in any order, in any thread, and at interpreter exit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

Isolated = Callable[..., str]

MAKE = """
import gc, sys, threading
from pyspec._core import Context, Model, State, STATE_PARTIAL_ONLY, STATE_ON_DEVICE
model = Model(sys.argv[1])
vocab = model.vocab
context = Context(model, n_ctx=256, n_threads=1)
context.decode([1, 2, 3], pos=0)
rows = context.logits()
state = State()
context.state_save(0, state)
view = state.view()
"""
NAMES = ("model", "vocab", "context", "state")


@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)), ids="-".join)
def test_objects_may_go_in_any_order(isolated_script: Isolated, tiny_draft_path: Path, order: tuple[str, ...]) -> None:
    deletions = "".join(f"del {name}; gc.collect()\n" for name in order)
    source = MAKE + deletions + "assert rows.shape[0] == 1 and view.sum() > 0\nprint('done')"
    assert isolated_script(source, str(tiny_draft_path)).strip() == "done"


@pytest.mark.parametrize("closing", ["", "model.close()", "context.close()", "model.close(); context.close()"])
def test_live_objects_at_exit_do_no_harm(isolated_script: Isolated, tiny_draft_path: Path, closing: str) -> None:
    source = MAKE + closing + "\nsys.keep = [model, vocab, context, state, view]\nprint('done')"
    assert isolated_script(source, str(tiny_draft_path)).strip() == "done"


def test_objects_in_a_cycle_do_no_harm(isolated_script: Isolated, tiny_draft_path: Path) -> None:
    source = MAKE + "loop = [model, context]; loop.append(loop); del model, context, loop; gc.collect(); print('done')"
    assert isolated_script(source, str(tiny_draft_path)).strip() == "done"


def test_last_reference_may_go_in_another_thread(isolated_script: Isolated, tiny_draft_path: Path) -> None:
    source = MAKE + (
        "box = [model, vocab, context]\n"
        "del model, vocab, context\n"
        "thread = threading.Thread(target=box.clear)\n"
        "thread.start(); thread.join()\n"
        "print('done')"
    )
    assert isolated_script(source, str(tiny_draft_path)).strip() == "done"


def test_daemon_thread_at_work_at_exit_does_no_harm(isolated_script: Isolated, tiny_draft_path: Path) -> None:
    source = MAKE + (
        "def work():\n"
        "    while True:\n"
        "        context.clear(); context.decode([1] * 200, pos=0)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "print('done')"
    )
    assert isolated_script(source, str(tiny_draft_path)).strip() == "done"


def test_failed_constructions_free_what_they_made(isolated_script: Isolated, tiny_draft_path: Path) -> None:
    source = MAKE + (
        "from pyspec import errors\n"
        "for options in ({'type_k': 'x'}, {'n_seq_max': 999}, {'n_threads': -1}):\n"
        "    for _ in range(20):\n"
        "        try:\n"
        "            Context(model, **options)\n"
        "        except errors.InvalidValueError:\n"
        "            continue\n"
        "        raise AssertionError(options)\n"
        "print('done')"
    )
    assert isolated_script(source, str(tiny_draft_path)).strip() == "done"


@pytest.mark.parametrize("forking", ["fork()", "threading.Thread(target=fork).start()"], ids=["main", "thread"])
def test_forked_child_ends_by_itself(isolated_script: Isolated, tiny_draft_path: Path, forking: str) -> None:
    source = MAKE + (
        "import os\n"
        "def fork():\n"
        "    pid = os.fork()\n"
        "    if pid != 0:\n"
        "        assert os.waitpid(pid, 0)[1] == 0\n"
        "        print('done')\n" + forking
    )
    assert isolated_script(source, str(tiny_draft_path), timeout_s=60).split() == ["done"]
