"""``space.where``: a small condition over a Point's dimensions, parsed once and never given to ``eval``.

Grammar: ``and or not``, ``== != < <= > >=`` (chains too), ``in`` and ``not in`` a list, ``+ - * / // % **``,
parentheses and numbers. It means what the same text means in Python.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from orchestrator.errors import InvalidValueError, nearest, shorten

NAMES = ("h", "tp", "batch", "seq", "d_ff", "a", "kv", "head_dim", "v", "experts", "topk", "ep", "layers")
MAX_LENGTH = 1000
MAX_DEPTH = 100
MAX_POWER_BITS = 4096

Number = int | float
Point = Mapping[str, int | None]
Evaluate = Callable[[Point], Number]
Test = Callable[[Point], bool]
Arithmetic = Callable[[Number, Number], Number]

_ALLOWED = f"use {', '.join(NAMES)}, numbers, + - * / // % **, comparisons, in [..], and, or, not, parentheses"

_ASSIGNMENT = re.compile(r"[^=<>!]=[^=]")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_POWER_BITS:
        raise OverflowError
    result = base**exponent
    if isinstance(result, complex):
        raise OverflowError
    return cast(Number, result)


_ARITHMETIC: Mapping[type[ast.operator], Arithmetic] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: _power,
    }
)
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Number, Number], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)


class Where:
    """A condition on a point. Raises InvalidValueError for a text outside the grammar.

    A condition that names a dimension which the point's role has not (``seq`` of ``seed_bmm``) is false: there is
    nothing to compare with. The empty text holds for every point.

    >>> Where("d_ff % (64*tp) == 0").evaluate(h=4096, tp=2, batch=4, seq=None, d_ff=11008)
    True
    """

    def __init__(self, text: str) -> None:
        """Parse ``text``."""
        self.text = text.strip()
        self._test, self.names = _Parser(self.text).parse() if self.text else (_always, frozenset[str]())

    def __repr__(self) -> str:
        """Show the text."""
        return f"Where({self.text!r})"

    def evaluate(self, **point: int | None) -> bool:
        """Return whether the condition holds; raises InvalidValueError for a division by zero or an overflow.

        point: the dimensions in NAMES, None or absent for what the role does not have. Where they are Columns, of many
        Points, the result is a mask, or a bool that holds for all, and InexactError may be raised.
        """
        if any(point.get(name) is None for name in self.names):
            return False
        return self._test(point)


def _always(_: Point) -> bool:
    return True


def _every(tests: Sequence[Test]) -> Test:
    """Whether all hold; of one Point those after the first that does not are not looked at, as in Python."""

    def holds(point: Point) -> bool:
        held = True
        for test in tests:
            held = held & test(point)
            if held is False:
                break
        return held

    return holds


def _some(tests: Sequence[Test]) -> Test:
    """Whether any holds; of one Point those after the first that does are not looked at, as in Python."""

    def holds(point: Point) -> bool:
        held = False
        for test in tests:
            held = held | test(point)
            if held is True:
                break
        return held

    return holds


def _equal(left: Evaluate, right: Evaluate) -> Test:
    return lambda point: left(point) == right(point)


@dataclass(frozen=True, slots=True)
class _Parser:
    """Turns the syntax tree of one text into closures; a piece is either a number or a condition, never both."""

    text: str

    def parse(self) -> tuple[Test, frozenset[str]]:
        if len(self.text) > MAX_LENGTH:
            raise InvalidValueError(f"{len(self.text)} characters; a condition has at most {MAX_LENGTH}")
        tree = self._tree()
        if _depth(tree) > MAX_DEPTH:
            raise InvalidValueError(f"'{shorten(self.text)}' is nested too deeply")
        return self._condition(tree), frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))

    def _tree(self) -> ast.expr:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the tokenizer's warnings (``1or 2``) become syntax errors
            try:
                return ast.parse(self.text, mode="eval").body
            except SyntaxError as error:
                column = f" at column {error.offset}" if error.offset else ""
                hint = "; equality is written ==" if _ASSIGNMENT.search(self.text) else ""
                raise InvalidValueError(f"'{shorten(self.text)}' is no condition{column}: {error.msg}{hint}") from None
            except UnicodeError:
                raise InvalidValueError(f"'{shorten(self.text)}' has a byte that is not UTF-8") from None
            except ValueError:
                raise InvalidValueError("has a null character") from None
            except (RecursionError, MemoryError):
                raise InvalidValueError(f"'{shorten(self.text)}' is nested too deeply") from None

    def _fail(self, node: ast.expr, message: str) -> InvalidValueError:
        return InvalidValueError(f"{self._piece(node)} {message}")

    def _piece(self, node: ast.expr) -> str:
        piece = shorten(ast.get_source_segment(self.text, node) or "")
        prefix = self.text.splitlines()[node.lineno - 1].encode()[: node.col_offset]
        return f"'{piece}' at column {len(prefix.decode()) + 1}"

    def _condition(self, node: ast.expr) -> Test:
        match node:
            case ast.BoolOp(op=op, values=values):
                return (_every if isinstance(op, ast.And) else _some)([self._condition(value) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                test = self._condition(operand)
                return lambda point: test(point) ^ True
            case ast.Compare():
                return self._comparison(node)
        self._number(node)  # says what is wrong inside it, if anything is
        raise self._fail(node, "is a number, not a condition; compare it with something, such as '== 0'")

    def _comparison(self, node: ast.Compare) -> Test:
        links: list[Test] = []
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            links.append(self._link(left, op, right, last=right is node.comparators[-1]))
            left = right
        return _every(links)

    def _link(self, left: ast.expr, op: ast.cmpop, right: ast.expr, *, last: bool) -> Test:
        value = self._number(left)
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(right, (ast.List, ast.Tuple, ast.Set)) or not right.elts or not last:
                raise self._fail(right, "must be a list of numbers after 'in', such as [1024, 2048]")
            members = [self._number(member) for member in right.elts]
            wanted = isinstance(op, ast.In)
            found = _some([_equal(member, value) for member in members])
            return found if wanted else lambda point: found(point) ^ True
        compare = _COMPARISONS.get(type(op))
        if compare is None:
            raise self._fail(right, f"is compared with 'is'; {_ALLOWED}")
        other = self._number(right)
        return lambda point: compare(value(point), other(point))

    def _number(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() as constant):
                return lambda _: constant
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                inner = self._number(operand)
                return inner if isinstance(sign, ast.UAdd) else lambda point: -inner(point)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._arithmetic(node, self._number(left), _ARITHMETIC[type(op)], self._number(right))
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                raise self._fail(node, "is a condition where a number is needed; join conditions with and, or, not")
        raise self._fail(node, f"is not allowed; {_ALLOWED}")

    def _name(self, node: ast.expr, name: str) -> Evaluate:
        if name not in NAMES:
            close = nearest(name, NAMES, limit=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise self._fail(node, f"is an unknown name; {hint}there are: {', '.join(NAMES)}")

        def read(point: Point) -> Number:
            value = point[name]
            assert value is not None  # Where.evaluate answers before a missing one is read
            return value

        return read

    def _arithmetic(self, node: ast.expr, left: Evaluate, apply: Arithmetic, right: Evaluate) -> Evaluate:
        def evaluate(point: Point) -> Number:
            try:
                return apply(left(point), right(point))
            except ZeroDivisionError:
                raise self._fail(node, f"divides by zero for {_show(point)}") from None
            except OverflowError:
                raise self._fail(node, f"is too large or not a real number for {_show(point)}") from None

        return evaluate


def _depth(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _show(point: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items() if value is not None)
