"""Ctrl-C and a closed pipe end `pyspec` at once and without a traceback."""

import signal
import sys

import pytest

from pyspec import progress

ENDLESS = ("generate", "tiny-target", "def add(a, b):", "-n", "-1", "--ignore-eos")
TIMEOUT_S = 120  # a hang, not a speed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("spec", ["none", "ngram-mod:n_match=3,n_min=1,n_max=8", "draft:tiny-draft"])
def test_ctrl_c_during_a_generation_prints_its_counts_and_exits_with_130(cli_process, spec):
    process = cli_process(*ENDLESS, "--spec", spec)
    assert process.stdout.read(1) != b"", process.stderr.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err.startswith(b"\n[interrupted after ")
    assert b"Traceback" not in err
    assert b"Error" not in out + err


def test_ctrl_c_during_a_load_cancels_it(cli, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.ProgressBar, "__call__", interrupt)
    result = cli("info", "tiny-target")
    assert (result.code, result.out, result.err) == (130, "", "pyspec: error: interrupted\n")


def test_a_reader_that_goes_away_ends_the_generation_in_silence(cli_process):
    process = cli_process(*ENDLESS)
    assert len(process.stdout.read(1)) == 1
    process.stdout.close()
    assert process.wait(timeout=TIMEOUT_S) == 141
    assert process.stderr.read() == b""
