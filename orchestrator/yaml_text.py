"""YAML as the project reads it: without the numbers that YAML 1.1 takes for others than they seem to be."""

import re
from collections.abc import Callable, Iterator
from typing import cast

import yaml

from orchestrator.errors import InvalidValueError, shorten

_AMBIGUOUS = re.compile(r"[-+]?(0\d[\d_]*|\d[\d_]*(:[0-5]?\d)+)")  # octal and base-60 numbers of YAML 1.1

TAG_ERRORS = (KeyError, AttributeError)
"""What PyYAML raises for ``!!bool x`` and ``!!timestamp x``."""
TAG_MESSAGE = "has a value that is not what its YAML tag says"


def refuse_ambiguous(text: str, place: str = "") -> None:
    """Raise InvalidValueError for a number that is octal or base-60 to YAML; ``place`` opens the message."""
    if _AMBIGUOUS.fullmatch(text):
        message = f"'{shorten(text)}' is an octal or base-60 number to YAML; write a plain decimal number"
        raise InvalidValueError(f"{place}{message}")


def checked_node(text: str, place: Callable[[yaml.Mark], str]) -> yaml.Node | None:
    """Return the YAML tree of a text, or raise InvalidValueError for one that is no YAML or has an ambiguous number.

    place: how a message about a mark in the text begins.
    """
    try:
        node = cast(yaml.Node | None, yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        reason = str(error.problem).replace("'<stream end>'", "the end")
        raise InvalidValueError(f"{place(error.problem_mark)}{reason}") from None
    except yaml.YAMLError as error:
        raise InvalidValueError(f"is not valid YAML: {shorten(str(error))}") from None
    except RecursionError:
        raise InvalidValueError("is nested too deeply") from None
    for scalar in _plain_scalars(node):
        refuse_ambiguous(scalar.value, f"line {scalar.start_mark.line + 1}: ")
    return node


def refuse_duplicates(root: yaml.Node) -> None:
    """Raise InvalidValueError for a mapping that has a key twice: the first one would be lost."""
    for node in _nodes(root):
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise InvalidValueError(f"line {key.start_mark.line + 1}: found duplicate key {shorten(key.value)}")
            seen.add(str(key.value))


def _plain_scalars(root: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """Yield the unquoted scalars."""
    return (node for node in _nodes(root) if isinstance(node, yaml.ScalarNode) and node.style is None)


def _nodes(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """Yield all values; a node that an alias repeats is visited once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            pending += [value for _, value in node.value]
