"""ggml's kernels for CPUs, as this build compiles them, do what the headers in front of them are for.

Owns a reader of compiler output that says which 64 bytes `ldtilecfg` sees. No AMX is needed: the files are
compiled with the flags of the build plus those of a CPU that has it. GCC 11 and 12 fail the first law without
cmake/amx_tiles.h.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KERNELS = "ggml/src/ggml-cpu/amx/mmq.cpp"
DISPATCH = "ggml/src/ggml-cpu/amx/amx.cpp"
PRODUCTS = "ggml/src/ggml-cpu/ggml-cpu.c"
AMX_FLAGS = ["-march=sapphirerapids", "-fno-lto", "-S", "-o", "-"]

# The layout of ldtilecfg's operand: palette, start row, 14 reserved bytes, 16 row lengths in bytes, 16 row
# counts; with the tiles that mmq.cpp documents: B 8x64 in 0 and 1, A 16x32 in 2 and 3, C 16x64 in 4 to 7.
CONFIGURATION = struct.pack(
    "<BB14x16H16B",
    1,
    0,
    *[64, 64, 32, 32, 64, 64, 64, 64],
    *[0] * 8,
    *[8, 8, 16, 16, 16, 16, 16, 16],
    *[0] * 8,
)

DATA_SIZES = {".byte": 1, ".value": 2, ".word": 2, ".short": 2, ".long": 4, ".quad": 8}
MOVE_SIZES = {"movb": 1, "movw": 2, "movl": 4, "movq": 8, "vmovd": 4, "vmovq": 8}
VECTOR_SIZES = {"x": 16, "y": 32, "z": 64}
MEMORY = re.compile(r"(-?\d*)\((%\w+)\)$")
WIDE_NAMES = re.compile(r"%(?:[er]?([a-ds][xip]l?|[abcds][lh])|(r\d+)[bwd]?)$")


def register(name: str) -> str:
    """One name for all widths of a register."""
    if match := re.match(r"%[xyz](mm\d+)$", name):
        return match[1]
    if match := WIDE_NAMES.match(name):
        return match[2] or match[1].rstrip("lhx")
    return name


def constants(assembly: str) -> dict[str, bytes]:
    """The bytes at each label of read-only data."""
    found: dict[str, bytes] = {}
    label = ""
    for line in assembly.splitlines():
        fields = line.split("#")[0].split(maxsplit=1)
        if line and not line[0].isspace() and line.endswith(":"):
            label = line[:-1]
            found[label] = b""
        elif len(fields) == 2 and label:
            if fields[0] in DATA_SIZES and re.fullmatch(r"-?\d+\s*", fields[1]):
                size = DATA_SIZES[fields[0]]
                found[label] += (int(fields[1]) % (1 << 8 * size)).to_bytes(size, "little")
            elif fields[0] == ".zero" and fields[1].strip().isdigit():
                found[label] += bytes(int(fields[1]))
    return found


def operands(text: str) -> list[str]:
    """The operands of an instruction; a comma inside parentheses does not split."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text.split("#")[0])]


def loaded_configurations(assembly: str) -> list[bytes | None]:
    """The 64 bytes that each `ldtilecfg` loads, as the straight-line code before it stored them.

    None for one of which a byte is not known to have been stored.
    """
    data = constants(assembly)
    values: dict[str, bytes] = {}
    stored: dict[str, dict[int, int]] = {}
    results: list[bytes | None] = []
    for line in assembly.splitlines():
        if re.match(r"[.\w]+:", line):
            if not line.startswith((".LV", ".LB", ".LF", ".Lt")):
                values, stored = {}, {}
            continue
        fields = line.split(maxsplit=1)
        if not fields or fields[0][0] in ".#" or len(fields) < 2:
            continue
        name, parts = fields[0], operands(fields[1])
        if name.startswith("call"):
            values = {}
        elif name == "ldtilecfg":
            match = MEMORY.match(parts[0])
            assert match, f"an operand that this reader does not know: {line.strip()}"
            cells, start = stored.get(match[2], {}), int(match[1] or 0)
            bytes_ = [cells.get(start + i) for i in range(64)]
            results.append(None if None in bytes_ else bytes(b for b in bytes_ if b is not None))
        elif name in ("vpxor", "vpxord", "vpxorq", "vxorps", "pxor", "xorl") and len(set(parts)) == 1:
            values[register(parts[0])] = bytes(64)
        elif name in MOVE_SIZES or name.startswith(("vmovdq", "vmovap", "vmovup", "movabs")):
            source, target = parts
            vector = re.match(r"%([xyz])mm", source) or re.match(r"%([xyz])mm", target)
            size = MOVE_SIZES.get(name) or (VECTOR_SIZES[vector[1]] if vector else 8)
            value: bytes | None = None
            if match := re.match(r"\$(-?\d+)$", source):
                value = (int(match[1]) % (1 << 8 * size)).to_bytes(size, "little")
            elif match := re.match(r"(\.L\w+)(?:\+(\d+))?\(%rip\)$", source):
                offset = int(match[2] or 0)
                value = data.get(match[1], b"")[offset : offset + size]
            elif source.startswith("%"):
                value = values.get(register(source), b"")[:size]
            if match := MEMORY.match(target):
                cells, start = stored.setdefault(match[2], {}), int(match[1] or 0)
                for i in range(size):
                    cells.pop(start + i, None)
                    if value is not None and len(value) == size:
                        cells[start + i] = value[i]
            elif target.startswith("%"):
                # What a narrow move does not write is zero.
                values[register(target)] = value + bytes(64 - size) if value and len(value) == size else b""
        elif parts[-1].startswith("%"):
            values[register(parts[-1])] = b""
    return results


def build_commands(file: str = KERNELS) -> list[list[str]]:
    """How the newest build of the extension compiled a file: one command, or one for each CPU variant."""
    databases = sorted(ROOT.glob("build/*/compile_commands.json"), key=lambda path: path.stat().st_mtime)
    builds = [json.loads(path.read_text()) for path in databases]
    builds = [build for build in builds if any(entry["file"].endswith("csrc/module.cpp") for entry in build)]
    assert builds, f"no build below {ROOT / 'build'}; run `pip install .` in {ROOT} first"
    entries = builds[-1]
    return [shlex.split(entry["command"]) for entry in entries if entry["file"].endswith(file)]


def compile_kernels(command: list[str], flags: list[str] = AMX_FLAGS) -> str:
    """What a command of the build gives for a CPU with AMX: assembly, or what other `flags` ask for."""
    if Path(command[0]).name in ("ccache", "sccache"):
        command = command[1:]
    kept = [part for i, part in enumerate(command) if part not in ("-c", "-o") and command[i - 1] != "-o"]
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run([*kept, *flags], check=True, capture_output=True, text=True, env=environment).stdout


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="only x86-64 has AMX")
def test_kernels_load_the_configuration_that_they_write() -> None:
    commands = build_commands()
    assert commands, f"the build does not compile {KERNELS}"
    assembly = compile_kernels(commands[0])
    loaded = loaded_configurations(assembly)
    if not loaded:
        # Only a compiler whose macros the kernels do not know (clang 14) may leave them out, and then wholly.
        assert "-include" not in commands[0], "no ldtilecfg in the kernels"
        assert "tileloadd" not in assembly, "tiles without a configuration"
    assert loaded == [CONFIGURATION] * len(loaded)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="only x86-64 has AMX")
def test_products_of_several_sequences_reach_the_kernels_as_one() -> None:
    """Several matrices on the right side would be written over other memory, several of weights be read wrongly."""
    (command, *_) = build_commands(DISPATCH)
    source = compile_kernels(command, ["-march=sapphirerapids", "-E", "-P"])
    calls = re.findall(r"\b(\w*amx_mul_mat)\(params, \w+\);", source)
    assert calls == ["pyspec_amx_mul_mat"]
    assert "!pyspec_can_be_src0(src0) || !pyspec_can_be_src1(src1)" in source


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the order of sums is x86's")
def test_products_of_one_column_take_the_order_of_sums_of_several() -> None:
    (command, *_) = build_commands(PRODUCTS)
    source = compile_kernels(command, ["-march=sapphirerapids", "-E", "-P"])
    assert len(re.findall(r"!pyspec_sgemm\(params,", source)) == 2
    assert len(re.findall(r"[^_]llamafile_sgemm\(params,", source)) == 1


def cpu_flags() -> set[str]:
    """What this CPU can do, in Linux's words."""
    info = Path("/proc/cpuinfo")
    return set(info.read_text().split()) if info.exists() else set()


@pytest.mark.parametrize(
    ("march", "needs"),
    [
        ("haswell", {"avx2", "f16c", "fma"}),
        ("skylake-avx512", {"avx512f", "avx512dq", "avx512bw", "avx512vl"}),
        ("cooperlake", {"avx512f", "avx512_bf16", "avx512_vnni"}),
    ],
)
def test_products_of_one_column_are_those_of_two_to_the_bit(march: str, needs: set[str], tmp_path: Path) -> None:
    if not needs <= cpu_flags():
        pytest.skip(f"this CPU cannot run code for {march}")
    (command, *_) = build_commands(PRODUCTS)
    compiler = next(part for part in command if not Path(part).name.endswith("cache"))
    tree = Path(next(part for part in command if part.endswith(PRODUCTS))).parent
    folders = [f"-I{folder}" for folder in (tree, tree.parent, tree.parent.parent / "include", ROOT / "cmake")]
    flags = [f"-march={march}", "-O3", "-DNDEBUG", "-DGGML_USE_LLAMAFILE", *folders]
    for source in (ROOT / "tests" / "one_class_harness.c", tree / "llamafile" / "sgemm.cpp"):
        output = ["-o", str(tmp_path / f"{source.stem}.o")]
        subprocess.run([compiler, *flags, "-c", str(source), *output], check=True, capture_output=True)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    program = str(tmp_path / "compare")
    subprocess.run([compiler, *objects, "-o", program, "-lstdc++", "-lm"], check=True, capture_output=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    compared = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}
    assert set(compared) == {"f32", "f16", "bf16"}
    assert min(compared.values()) > 5


@pytest.mark.parametrize(
    ("stores", "expected"),
    [
        pytest.param(
            "vmovdqa64 %zmm0, 192(%rsp)\n movq .LC1(%rip), %rdx\n vmovdqa .LC2(%rip), %xmm0\n"
            " movb $1, 192(%rsp)\n movq %rdx, 240(%rsp)\n vmovdqa %xmm0, 208(%rsp)\n",
            CONFIGURATION,
            id="all stores",
        ),
        pytest.param(
            "vmovdqa64 %zmm0, 192(%rsp)\n movb $1, 192(%rsp)\n",
            bytes([1]) + bytes(63),
            id="rows and lengths dropped",
        ),
        pytest.param("movb $1, 192(%rsp)\n", None, id="only the palette"),
        pytest.param("", None, id="no store"),
        pytest.param(
            "vmovdqa64 %zmm0, 192(%rsp)\n vmovdqu %ymm7, 200(%rsp)\n",
            None,
            id="overwritten by an unknown register",
        ),
        pytest.param("vmovdqa64 %zmm0, 192(%rsp)\n.L7:\n", None, id="stored on one of two paths"),
    ],
)
def test_reader_sees_what_was_stored(stores: str, expected: bytes | None) -> None:
    assembly = (
        "_Z7kernelsv:\n vpxor %xmm0, %xmm0, %xmm0\n "
        + stores
        + '\n#APP\n# 42 "amxtileintrin.h" 1\n ldtilecfg 192(%rsp)\n#NO_APP\n ret\n'
        ".LC1:\n .byte 8\n .byte 8\n .value 4112\n .long 269488144\n"
        ".LC2:\n .value 64\n .value 64\n .value 32\n .value 32\n .quad 18014673391583296\n"
    )
    assert loaded_configurations(assembly) == [expected]
