"""The docstring below each field of a model, read from the source when somebody asks.

Pydantic reads them while it builds a model (``use_attribute_docstrings``), which would make every command that takes a
resource wait; only the CRD and messages about wrong values want them. Used by ``base`` and ``explain``.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def field_descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the words about each field of ``model``, in one line, by the name that users write."""
    words = _docstrings(model.__module__)[model.__name__]
    return {field.alias or name: words[name] for name, field in model.model_fields.items() if name in words}


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the fields in each class of ``module``, by the names of class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _below_fields(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below_fields(definition: ast.ClassDef) -> dict[str, str]:
    words = {}
    for statement, below in pairwise(definition.body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                words[name] = " ".join(text.split())
            case _:
                pass
    return words
