"""A template's syntax tree, rewritten so that everything in it is counted.

Owns which statements a chat template may have, and the guards in the place of what Jinja compiles to bare Python:
loops, comparisons, concatenation, slices, literal text, dict keys. Leaves what they do to `filters`.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from pyspec.chat.templating.meter import STEP
from pyspec.errors import ChatTemplateError

__all__ = ["Generation", "rewritten"]

_ALLOWED = (
    "Template Output TemplateData For If Macro CallBlock FilterBlock With Assign AssignBlock ExprStmt Scope Continue "
    "Break Name NSRef Const Tuple List Dict Pair Keyword CondExpr Filter Test Call Getitem Getattr Slice Concat "
    "Compare Operand And Or Not Neg Pos Add Sub Mul Div FloorDiv Mod Pow"
).split()
_CONTAINERS = (nodes.List, nodes.Tuple, nodes.Dict)
_N_NODES_MAX = 10_000


class Generation(Extension):
    """`{% generation %} ... {% endgeneration %}`: marks what an assistant said; rendered as what is inside."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own attribute

    def parse(self, parser: Parser) -> nodes.Node:
        """The statements inside, in a scope of their own."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def rewritten(tree: nodes.Template, environment: Any) -> nodes.Template:
    """The same template with its guards.

    Raises:
        ChatTemplateError: a statement that a chat template may not have, or too many nodes.
    """
    n_nodes = 0
    for node in tree.find_all(nodes.Node):
        n_nodes += 1
        kind = type(node).__name__
        if kind not in _ALLOWED:
            raise ChatTemplateError(
                kind="syntax",
                reason=f"a chat template stands alone and may not use {kind.lower()!r}",
                line=node.lineno,
            )
    if n_nodes > _N_NODES_MAX:
        raise ChatTemplateError(
            kind="limit", reason=f"{n_nodes} nodes of syntax, at most {_N_NODES_MAX}", limit="n_nodes"
        )
    _Guards().visit(tree)
    return tree.set_environment(environment)  # type: ignore[return-value]


def _guard(name: str, node: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, f"guard {name}", list(args), [], None, None, lineno=node.lineno)


def _const(value: Any, like: nodes.Node) -> nodes.Const:
    return nodes.Const(value, lineno=like.lineno)


def _cost(node: nodes.Node) -> int:
    """Units of one pass through everything below `node`: half an operation each, two for a list or dict."""
    return STEP + sum(2 * STEP if isinstance(n, _CONTAINERS) else STEP // 2 for n in node.find_all(nodes.Node))


def _step(node: nodes.Node) -> nodes.Filter:
    return _guard("step", _const(_cost(node), node))


class _Guards(NodeTransformer):
    def _body(self, node: Any) -> Any:
        step = nodes.ExprStmt(_step(node), lineno=node.lineno)
        self.generic_visit(node)
        node.body = [step, *node.body]
        return node

    visit_Template = visit_Macro = visit_CallBlock = _body

    def visit_For(self, node: nodes.For) -> nodes.Node:
        test, step, otherwise = node.test, _step(node), node.else_
        self._body(node)
        if otherwise:  # a recursive loop comes here in each of its calls
            node.else_ = [nodes.ExprStmt(_step(node), lineno=node.lineno), *node.else_]
        if test is not None:  # items that the test drops never reach the body
            node.test = nodes.And(step, node.test, lineno=node.lineno)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        # As constants, they pass through `finalize`, where output is counted.
        node.nodes = [_const(n.data, n) if isinstance(n, nodes.TemplateData) else n for n in node.nodes]
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _guard("concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        values = [node.expr, *(operand.expr for operand in node.ops)]
        ops = [_const(operand.op, node) for operand in node.ops]
        return _guard("compare", nodes.List(values, lineno=node.lineno), *ops)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return _guard("slice", node.node, *(_const(None, node) if b is None else b for b in bounds))

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _guard("key", node.key)
        return node
