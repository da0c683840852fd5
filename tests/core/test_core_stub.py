"""Law of the stub: _core.pyi and the extension have the same names, methods, properties and parameters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pyspec
from pyspec import _core

STUB = ast.parse((Path(pyspec.__file__).parent / "_core.pyi").read_text())


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list)


def _parameters(function: ast.FunctionDef) -> list[str]:
    """Names in order, "*" where keyword-only begins, a "=" behind those with a default."""
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    n_required = len(positional) - len(a.defaults)
    names = [p.arg + ("=" if i >= n_required else "") for i, p in enumerate(positional)]
    if a.kwonlyargs:
        names.append("*")
    names += [p.arg + ("=" if d is not None else "") for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    return [name for name in names if name != "self"]


def _bound_parameters(docstring: str) -> list[str]:
    """The same, from the first line that pybind11 writes."""
    signature = docstring.splitlines()[0]
    inside = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    flat = inside
    while (shorter := re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", flat)) != flat:
        flat = shorter
    names = []
    for part in filter(None, (p.strip() for p in flat.split(","))):
        name = part.split(":")[0].strip()
        names.append(name + ("=" if "=" in part else ""))
    return [name for name in names if name != "self"]


CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
CONSTANTS = {
    node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
}
MEMBERS = [(name, item) for name, node in CLASSES.items() for item in node.body if isinstance(item, ast.FunctionDef)]


def test_module_has_the_names_of_the_stub() -> None:
    public = {name for name in vars(_core) if not name.startswith("_")}
    assert public == set(CLASSES) | set(FUNCTIONS) | CONSTANTS


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_class_has_the_members_of_the_stub(name: str) -> None:
    stub = {item.name for item in CLASSES[name].body if isinstance(item, ast.FunctionDef)} - {"__init__"}
    assert {member for member in vars(getattr(_core, name)) if not member.startswith("_")} == stub


@pytest.mark.parametrize(("owner", "item"), MEMBERS, ids=[f"{owner}.{item.name}" for owner, item in MEMBERS])
def test_member_is_what_the_stub_says(owner: str, item: ast.FunctionDef) -> None:
    member = vars(getattr(_core, owner))[item.name]
    assert isinstance(member, property) == _is_property(item)
    if not isinstance(member, property):
        documented = getattr(getattr(_core, owner), item.name).__doc__
        assert _bound_parameters(documented) == _parameters(item)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_has_the_parameters_of_the_stub(name: str) -> None:
    assert _bound_parameters(getattr(_core, name).__doc__) == _parameters(FUNCTIONS[name])


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"Device"}))
def test_class_is_final(name: str) -> None:
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (getattr(_core, name),), {})
