"""The stub of the extension module has the classes and methods of the module, and their arguments in order."""
import ast
import re
from pathlib import Path

import pytest

import kvcache
from kvcache import _kvcache

STUB = ast.parse((Path(kvcache.__file__).parent / "_kvcache.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def arguments_by_method(cls):
    """Method -> the argument names of its longest overload."""
    methods = {}
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            methods[node.name] = max(methods.get(node.name, []), names, key=len)
    return methods


def arguments_of_binding(method):
    """Names in the first line of its docstring: "export(self, sequence: object, layer: int, ...) -> object"."""
    inside = re.fullmatch(r"\w+\((.*)\) -> .*", method.__doc__.splitlines()[0]).group(1)
    return [name for name in re.findall(r"(?:^|, )(\w+)(?=[:,]|$| =)", inside)]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_methods_and_arguments(name):
    cls, stub = getattr(_kvcache, name), arguments_by_method(CLASSES[name])
    public = {method for method in vars(cls) if not method.startswith("__")}
    assert public <= set(stub), "in the module, not in the stub"
    assert {method for method in stub if not method.startswith("__")} <= public, "in the stub, not in the module"
    for method in public:
        if callable(getattr(cls, method)):
            assert sorted(stub[method]) == sorted(arguments_of_binding(getattr(cls, method))), method


def test_classes_and_functions():
    names = {node.name for node in STUB.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert names == {name for name in vars(_kvcache) if not name.startswith("__")}
