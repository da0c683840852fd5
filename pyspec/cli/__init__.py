"""The command line: `pyspec generate`, `info`, `models`, `doctor`, `verify`, `bench` and `demo`.

Owns the choice of the subcommand, exit codes, and how errors and warnings reach the user.
Leaves the work to one file per subcommand.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import pyspec
from pyspec import _core, errors
from pyspec.cli import bench, demo, doctor, generate, info, models, verify
from pyspec.cli.parser import Parser

__all__ = ["main"]

EXIT_FAILED, EXIT_MISUSE, EXIT_INTERRUPTED, EXIT_PIPE = 1, 2, 130, 141

_MISUSE = (
    errors.ConstraintError,
    errors.ContextFullError,
    errors.GrammarError,
    errors.InvalidValueError,
    errors.ModelLoadError,
    errors.TokenRangeError,
    errors.UnknownOptionError,
    errors.UnsupportedError,
    errors.VocabularyMismatchError,
    errors.VocabularyMissingError,
)
_MISUSED_FILES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (`sys.argv` without the program by default) and return its exit code.

    0 done, 1 failed (or texts differ), 2 misuse, 130 Ctrl-C, 141 the reader of the output went away.

    Raises:
        SystemExit: `--help`, `--version`, or arguments that do not parse.
    """
    parser = _parser()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a model may say what an old terminal cannot show
    try:
        args, unknown = parser.parse_known_args(argv)
        if unknown:
            args.parser.refuse(unknown[0])
        with _messages(verbose=getattr(args, "verbose", False)):
            code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence()
        return EXIT_PIPE
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except errors.PyspecError as error:
        return _fail(str(error), EXIT_MISUSE if isinstance(error, _MISUSE) else EXIT_FAILED)
    except OSError as error:
        return _fail(str(error), EXIT_MISUSE if isinstance(error, _MISUSED_FILES) else EXIT_FAILED)
    except MemoryError as error:
        return _fail(f"not enough memory {error}".strip(), EXIT_FAILED)


def _parser() -> Parser:
    parser = Parser(
        prog="pyspec",
        description="Speculative decoding for GGUF models: faster generation that does not change what they say.",
    )
    version = f"pyspec {pyspec.__version__}, llama.cpp {_core.LLAMA_CPP_COMMIT}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(parser=parser)
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands", required=True, parser_class=Parser)
    for command in (generate, info, models, doctor, verify, bench, demo):
        command.add_parser(subparsers)
    return parser


@contextlib.contextmanager
def _messages(*, verbose: bool) -> Iterator[None]:
    """Show the library's warnings on stderr; with `verbose` also what it tells, and llama.cpp's own messages.

    What llama.cpp says about a failure is in the error; about a decode that Ctrl-C stopped it would be noise.
    """
    log, handler = logging.getLogger("pyspec"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    if not verbose:
        handler.addFilter(lambda record: record.name != "pyspec.llama")
    before, level = log.level, logging.INFO if verbose else logging.WARNING
    log.addHandler(handler)
    log.setLevel(level)
    _core.set_log_level(level)
    try:
        yield
        _core.flush_log()
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _fail(message: str, code: int) -> int:
    try:
        sys.stdout.flush()
        sys.stderr.write(f"pyspec: error: {message}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _silence()
    return code


def _silence() -> None:
    """Point the streams to nowhere, so that the interpreter's last flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
