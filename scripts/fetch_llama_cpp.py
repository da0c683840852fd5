#!/usr/bin/env python3
"""Fill `vendor/llama.cpp` with the sources that `vendor/llama_cpp.json` pins.

Owns the download (through pip, so that the user's index settings apply), the check of the hash, the cache of
archives and the swap of the tree; leaves building to CMake. Standard library only: it runs before any build.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
STAMP = ".pyspec-source.json"
POLL_S = 0.1


class FetchError(Exception):
    """The tree could not be put in place; whatever lay there before still does."""


@dataclass(frozen=True)
class Pin:
    """What `vendor/llama_cpp.json` asks for."""

    package: str
    version: str
    archive: str
    sha256: str
    subtree: str
    commit: str

    @classmethod
    def read(cls, path: Path) -> Pin:
        """The pin in the file at `path`."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise FetchError(f"{path} is not a pin of llama.cpp: {error}") from error

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"llama.cpp {self.commit} (from {self.package} {self.version})"


def say(message: str) -> None:
    """Progress, for a person who waits."""
    print(f"fetch_llama_cpp: {message}", file=sys.stderr, flush=True)


def cache_dir() -> Path:
    """Where archives are kept: `PYSPEC_CACHE`, or `pyspec` in `XDG_CACHE_HOME` or `~/.cache`."""
    if own := os.environ.get("PYSPEC_CACHE"):
        return Path(own).expanduser().absolute() / "llama.cpp"
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "pyspec" / "llama.cpp"


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` against other processes; the system gives it back when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            while True:
                with contextlib.suppress(OSError):
                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                    break
                time.sleep(POLL_S)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- the archive --------------------------------------------------------------------------------


def pip_command() -> tuple[list[str], Mapping[str, str]]:
    """A pip that runs, and the environment it needs."""
    command = [sys.executable, "-m", "pip"]
    # Inside an isolated build, PYTHONPATH hides the packages of the interpreter, pip among them.
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for environment in (dict(os.environ), bare):
        if subprocess.run([*command, "--version"], capture_output=True, env=environment).returncode == 0:
            return command, environment
    raise FetchError(
        f"{sys.executable} has no pip to download llama.cpp with; install pip for it, or download the "
        "archive yourself and name it with --archive"
    )


def named(folder: Path, name: str) -> list[Path]:
    """Files called `name` below `folder`, where pip makes and removes folders meanwhile."""
    # unlike rglob, walk passes over folders that vanish
    return [Path(place, name) for place, _, files in os.walk(folder) if name in files]


def finished(folder: Path, pin: Pin) -> Path | None:
    """The pinned archive somewhere below `folder`, once it is whole."""
    for path in named(folder, pin.archive):
        with contextlib.suppress(OSError):
            if sha256(path) == pin.sha256:
                return path
    return None


def stop(process: subprocess.Popen[bytes]) -> None:
    """End pip and what it started."""
    if process.poll() is None:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def download(pin: Pin, folder: Path) -> Path:
    """Let pip download the pinned archive into `folder`.

    pip also wants the metadata of a source package, for which it sets up the package's own build. That takes
    a minute and is of no use here, so pip is stopped as soon as the archive is whole.
    """
    command, environment = pip_command()
    out, scratch, log = folder / "out", folder / "scratch", folder / "pip.log"
    scratch.mkdir()
    # With the hash in the requirement, pip runs no code of an archive that is not the pinned one.
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n", encoding="utf-8")
    command += [
        "download",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--disable-pip-version-check",
        "--require-hashes",
    ]
    command += ["--dest", str(out), "--requirement", str(requirement)]
    environment = {**environment, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environment, stdout=sink, stderr=sink, start_new_session=True)
        size = 0
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
                grown = largest(named(scratch, pin.archive))
                if 0 < grown == size and (found := finished(scratch, pin)):
                    kept = folder / pin.archive
                    os.replace(found, kept)
                    return kept
                size = grown
        finally:
            stop(process)
    if found := finished(out, pin):
        return found
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:])
    raise FetchError(
        f"pip could not download {pin.package}=={pin.version} with the pinned SHA-256 {pin.sha256} "
        f"(exit status {process.returncode}):\n{tail}"
    )


def largest(paths: list[Path]) -> int:
    """Bytes of the largest of files that may vanish."""
    sizes = [0]
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def fetch_archive(pin: Pin, cache: Path) -> Path:
    """The pinned archive in the cache, downloaded unless it is there."""
    kept = cache / pin.archive
    if kept.is_file():
        if sha256(kept) == pin.sha256:
            say(f"using {kept}")
            return kept
        say(f"{kept} is damaged; downloading it again")
    say(f"downloading {pin.archive} with pip (75 MB)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".download-", ignore_cleanup_errors=True) as folder:
        os.replace(download(pin, Path(folder)), kept)
    return kept


# ---- the tree -----------------------------------------------------------------------------------


def extract(archive: Path, pin: Pin, into: Path) -> int:
    """Write the files of the pinned subtree of `archive` below `into`; returns how many.

    Times are those of the extraction: a build must notice that a file was replaced, however old the new.
    """
    prefix = PurePosixPath(f"{pin.package}-{pin.version}") / pin.subtree
    n_files = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if prefix not in path.parents or member.isdir():
                continue
            inside = path.relative_to(prefix)
            if not member.isfile() or ".." in path.parts or "\\" in member.name or ":" in member.name:
                raise FetchError(f"{archive} holds {member.name!r}, which is no plain file inside {prefix}")
            if inside.parts[0] == ".git":
                continue
            target = into.joinpath(*inside.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None, "a plain file of an archive has content"
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
            n_files += 1
    if not (into / "CMakeLists.txt").is_file():
        raise FetchError(f"{archive} has no {prefix}/CMakeLists.txt")
    return n_files


def stamp_of(tree: Path) -> object:
    """What the tree says of itself, None for one that this script did not write."""
    try:
        return json.loads((tree / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def refuse_foreign(tree: Path, pin: Pin, force: bool) -> None:
    """Raise unless `tree` may be filled: it is missing or empty, or `force` says so."""
    if force or not tree.exists() or (tree.is_dir() and not any(tree.iterdir())):
        return
    stamp = stamp_of(tree)
    what = "was not put there by this script"
    if isinstance(stamp, dict):
        what = f"holds {stamp.get('package')} {stamp.get('version')}"
    raise FetchError(
        f"{tree} {what}, but {pin.name} is pinned; it is left as it is. Replace it with --force, or build "
        f"against it with -C cmake.define.PYSPEC_LLAMA_CPP_DIR={tree}"
    )


def swap(new: Path, tree: Path) -> None:
    """Put `new` where `tree` is, by renames only, so that a crash never leaves half a tree there."""
    old = new.with_name(new.name + ".old")
    replaced = tree.exists() or tree.is_symlink()
    if replaced:
        os.rename(tree, old)
    try:
        os.rename(new, tree)
    except OSError:
        if replaced:
            os.rename(old, tree)
        raise


def fetch(pin: Pin, tree: Path, *, archive: Path | None = None, force: bool = False, cache: Path | None = None) -> bool:
    """Make `tree` the pinned sources. Returns whether anything was done.

    Raises:
        FetchError: the hash is wrong, the download failed, or another tree lies there and `force` is off. The
            old tree is left in place in each case.
    """
    with locked(tree.parent / f".{tree.name}.lock"):
        if stamp_of(tree) == asdict(pin) and (tree / "CMakeLists.txt").is_file() and not force:
            return False
        refuse_foreign(tree, pin, force)
        if archive is None:
            archive = fetch_archive(pin, cache or cache_dir())
        elif (actual := sha256(archive)) != pin.sha256:
            raise FetchError(f"{archive} has the wrong SHA-256: {actual} instead of the pinned {pin.sha256}")
        with tempfile.TemporaryDirectory(dir=tree.parent, prefix=f".{tree.name}-") as folder:
            new = Path(folder) / tree.name
            try:
                n_files = extract(archive, pin, new)
            except (tarfile.TarError, EOFError, OSError) as error:
                raise FetchError(f"{archive} cannot be unpacked: {error}") from error
            (new / STAMP).write_text(json.dumps(asdict(pin), indent=2) + "\n", encoding="utf-8")
            swap(new, tree)
        say(f"{tree} holds {pin.name}, {n_files} files")
    return True


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fill vendor/llama.cpp with the pinned sources.")
    parser.add_argument("--pin", type=Path, default=ROOT / "vendor" / "llama_cpp.json", help="the pin to follow")
    parser.add_argument("--tree", type=Path, default=ROOT / "vendor" / "llama.cpp", help="the folder to fill")
    parser.add_argument("--archive", type=Path, help="use this archive instead of downloading one")
    parser.add_argument("--force", action="store_true", help="replace whatever the folder holds")
    parser.add_argument("--quiet", action="store_true", help="say nothing when the tree is already there")
    options = parser.parse_args()
    try:
        pin = Pin.read(options.pin)
        done = fetch(pin, options.tree.absolute(), archive=options.archive, force=options.force)
    except FetchError as error:
        say(f"error: {error}")
        return 1
    if not done and not options.quiet:
        say(f"{options.tree} already holds {pin.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
