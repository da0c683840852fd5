"""The structure reads like its diagram: a module imports only what stands above it."""

import ast
from pathlib import Path

import pytest

import pyspec

PACKAGE = Path(pyspec.__file__).parent
# docs/development.md and README.md show the same order.
LAYERS = (
    {"errors", "config", "rounds", "oracle", "html", "summary", "stats", "cache", "models", "progress"} | {"shown"},
    {"_core"},
    {"speculators", "verify", "text", "budget", "acceptance", "agreement", "watched", "drafting", "residual"}
    | {"allowance", "reading", "undisturbed", "budgeted", "constraint", "halt", "logprobs"},
    {"memory", "rollback", "sequence", "widths", "exact", "assembly", "checkpoints", "held"}
    | {"cost_cache", "width_costs", "read_costs", "flash_attention"},
    {"speculators.draft_model", "request", "decoder"},
    {"testing", "arguments", "completion", "speculator_pool", "generation"},
    {"engine"},
    {"llm", "generating", "many", "asynchronous", "streams", "chat", "compat", "session", "lossless", "bench"},
    {"cli", "__main__", ""},
)


def layer_of(module: str) -> int:
    for name in (module, module.split(".")[0]):
        for level, members in enumerate(LAYERS):
            if name in members:
                return level
    raise AssertionError(f"module {module!r} stands in no layer")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {name.removeprefix("pyspec").lstrip(".") for name in found if name.split(".")[0] == "pyspec"}
    real = {
        m
        for m in ours
        if (PACKAGE / m.replace(".", "/")).exists() or (PACKAGE / (m.replace(".", "/") + ".py")).exists()
    }
    return {m for m in real | ({"_core"} & ours) if m}


MODULES = sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_its_own_layer_and_those_above(path: Path):
    module = ".".join(path.with_suffix("").parts).removesuffix("__init__").rstrip(".")
    level = layer_of(module)
    wrong = {name for name in imports_of(PACKAGE / path) if layer_of(name) > level}
    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_file_is_one_noun_of_at_most_400_lines(path: Path):
    assert len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) <= 400


def test_importing_the_package_changes_no_environment_and_prints_nothing(capfd: pytest.CaptureFixture[str]):
    import os
    import subprocess
    import sys

    code = "import os; a = dict(os.environ); import pyspec; assert a == dict(os.environ)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
