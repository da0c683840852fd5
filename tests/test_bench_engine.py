"""Laws of scripts/bench_engine.py: its options, the counts in its report, and what it reads of texts.

Owns a run without a server on a tiny model, and a server of a few lines that answers like llama.cpp's. What the times
are is seen where it runs.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "bench_engine.py"
N_TOKENS = 12


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The script and what it is made of, imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        names = ("bench_engine", "bench_engine_prompts", "llama_server")
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def run(tiny_target_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """The report and the turns of two requests at once."""
    turns = tmp_path_factory.mktemp("bench") / "turns.json"
    sizes = ["--parallel", "2", "--tokens", str(N_TOKENS), "--runs", "2", "--threads", "1", "--workloads", "prose"]
    line = [sys.executable, str(SCRIPT), "--no-server", "--models", str(tiny_target_path), *sizes, "--json", str(turns)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(turns.read_text(encoding="utf-8"))


def test_every_turn_generates_what_was_asked_for(run: tuple[str, list[dict[str, Any]]]) -> None:
    (measured,) = run[1]
    assert list(measured["turns"]) == ["engine auto", "engine none"]
    for turns in measured["turns"].values():
        assert len(turns) == 2
        for turn in turns:
            assert [len(text) for text in turn["whole"]["texts"]] == [N_TOKENS, N_TOKENS]
            assert [len(text) for text in turn["begun"]["texts"]] == [1, 1]
            assert turn["whole"]["n_decodes"] > turn["begun"]["n_decodes"] > 0
    assert all(turn["whole"]["n_drafted"] == 0 for turn in measured["turns"]["engine none"])


def test_the_report_has_a_row_for_each_and_says_which_texts_agree(run: tuple[str, list[dict[str, Any]]]) -> None:
    report, (measured,) = run
    rows = [line.split(" | ") for line in report.splitlines() if line.startswith("| engine")]
    assert [row[0] for row in rows] == ["| engine auto", "| engine none"]
    assert rows[0][3] == "1.000"
    assert rows[0][4] in ("1.000", "nan")  # a busy moment may make the prompts alone take longer than all
    assert rows[1][7:] == ["0", "0 |"]
    first, second = (measured["turns"][name][-1]["whole"]["texts"] for name in ("engine auto", "engine none"))
    n_equal = sum(a == b for a, b in zip(first, second, strict=True))
    assert f"engine auto = engine none: {n_equal} of 2 texts" in report
    assert "2 requests at once" in report


def test_options_have_the_defaults_of_the_goal(scripts: dict[str, ModuleType]) -> None:
    options = scripts["bench_engine"].parsed([])
    assert (options.models, options.parallel, options.specs) == (["smollm2-135m"], 8, ["auto", "none"])
    assert options.server_specs == ["none", *scripts["llama_server"].NGRAMS]
    assert scripts["bench_engine"].parsed(["--specs", "suffix", "--parallel", "3"]).specs == ["suffix"]


def test_no_two_prompts_share_a_beginning(scripts: dict[str, ModuleType]) -> None:
    for kind in scripts["bench_engine_prompts"].KINDS:
        found = scripts["bench_engine_prompts"].prompts(kind, 12)
        assert len({prompt[:24] for prompt in found}) == 12


@pytest.mark.parametrize(
    ("a", "b", "at"), [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [1], 0)]
)
def test_the_first_difference_is_found(scripts: dict[str, ModuleType], a: list[int], b: list[int], at: int) -> None:
    assert scripts["bench_engine"].first_difference(a, b) == at


@pytest.mark.parametrize(("text", "share"), [([1, 2, 3, 4, 5, 6], 0.0), ([1, 1, 1, 1, 1, 1], 2 / 3)])
def test_what_came_before_is_counted(scripts: dict[str, ModuleType], text: list[int], share: float) -> None:
    assert scripts["bench_engine"].repeated([text]) == pytest.approx(share)


class _Answering(BaseHTTPRequestHandler):
    """Answers as llama-server does: as many tokens as asked for, half of its drafts accepted."""

    def do_POST(self) -> None:
        """A completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        timings = {"cache_n": body.get("cached", 0), "draft_n": 4, "draft_n_accepted": 2}
        self._say({"tokens": [body["prompt"][0]] * body["n_predict"], "timings": timings})

    def do_GET(self) -> None:
        """Metrics."""
        self._say(None, "# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total 17\n")

    def log_message(self, *_: object) -> None:
        """Silence."""

    def _say(self, data: object, text: str = "") -> None:
        said = (text or json.dumps(data)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)


@pytest.fixture
def server(scripts: dict[str, ModuleType], tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "log").write_text("the last words\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        yield scripts["llama_server"].Server(served.server_port, tmp_path / "log")
        served.shutdown()
        thread.join()


def test_answers_come_in_the_order_of_the_requests(server: Any) -> None:
    answers = server.ask([{"prompt": [i], "n_predict": i} for i in range(1, 9)])
    assert [one.tokens for one in answers] == [[i] * i for i in range(1, 9)]
    assert {(one.n_drafted, one.n_accepted) for one in answers} == {(4, 2)}
    assert server.n_decodes == 17


def test_a_remembered_prompt_is_an_error(server: Any, scripts: dict[str, ModuleType]) -> None:
    with pytest.raises(scripts["llama_server"].ServerError, match="5 prompt tokens"):
        server.ask([{"prompt": [1], "n_predict": 1, "cached": 5}])


def test_a_server_that_ends_says_why(scripts: dict[str, ModuleType]) -> None:
    line = [sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)"]
    with (
        pytest.raises(scripts["llama_server"].ServerError, match=r"status 3:\nno such model"),
        scripts["llama_server"].running(line),
    ):
        pass
