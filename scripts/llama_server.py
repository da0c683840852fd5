"""A llama-server process for as long as it is measured, and requests to it.

Owns its command line, its start and end, and what its answers say. Leaves its build to `llama_cpp_programs`, and
prompts and tables to the benchmark.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""Its speculators that need no second model (`--spec-type`)."""

START_LIMIT_S = 120
_N_LINES_SHOWN = 20


class ServerError(Exception):
    """The server did not start, or refused a request; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said to one request.

    Attributes:
        tokens: generated.
        n_drafted, n_accepted: draft tokens.
    """

    tokens: list[int]
    n_drafted: int
    n_accepted: int


class Server:
    """A running server.

    Args:
        port: on this machine.
        log: the file that has what it says.
    """

    def __init__(self, port: int, log: Path) -> None:
        self._port = port
        self._log = log

    def ask(self, bodies: Sequence[dict[str, Any]]) -> list[Answer]:
        """All at once, each on a connection of its own; their answers in the same order."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(self._complete, bodies))

    @property
    def n_decodes(self) -> int:
        """Batches decoded since the start."""
        found = re.search(r"^llamacpp:n_decode_total (\S+)", self._call("GET", "/metrics"), re.MULTILINE)
        assert found, "the server was started with --metrics"
        return int(float(found[1]))

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until it takes requests."""
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            if process.poll() is not None:
                raise ServerError(f"llama-server ended with status {process.returncode}:\n{self._last_words()}")
            with contextlib.suppress(OSError, ServerError):
                self._call("GET", "/health")
                return
            time.sleep(0.05)
        raise ServerError(f"llama-server takes no requests after {START_LIMIT_S} s:\n{self._last_words()}")

    def _complete(self, body: dict[str, Any]) -> Answer:
        said = json.loads(self._call("POST", "/completion", body))
        timings = said["timings"]
        if timings.get("cache_n"):
            raise ServerError(f"{timings['cache_n']} prompt tokens were not decoded but remembered")
        return Answer(said["tokens"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3600)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status != 200:
            raise ServerError(f"{path}: status {answer.status}: {said[:500]}\n{self._last_words()}")
        return said

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_N_LINES_SHOWN:])


def command(
    program: Path, model: Path, *, n_parallel: int, n_ctx: int, n_threads: int, spec: str, more: Sequence[str] = ()
) -> list[str]:
    """The command line, but for host and port.

    Args:
        program: the server.
        model: a GGUF file.
        n_parallel: slots.
        n_ctx: positions of each slot.
        n_threads: of all decodes.
        spec: a `--spec-type`.
        more: further arguments.
    """
    sizes = {"-np": n_parallel, "-c": n_ctx * n_parallel, "-t": n_threads, "-tb": n_threads}
    line = [str(program), "-m", str(model), *(str(word) for pair in sizes.items() for word in pair)]
    # Nothing is remembered between requests, and nothing but the model is looked for.
    line += ["--spec-type", spec, "-fa", "auto", "--cache-ram", "0", "--metrics", "--no-webui", "--offline"]
    return [*line, "-fit", "off", *more]


@contextlib.contextmanager
def running(line: Sequence[str]) -> Iterator[Server]:
    """The server of this command line, ready for requests; it ends with the block.

    Raises:
        ServerError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            words = [*line, "--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        try:
            server = Server(port, log)
            server.wait(process)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
