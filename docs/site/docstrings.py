"""An extension of griffe: the docstrings of the extension module, which its types in _kvcache.pyi lack."""

import functools
import re
from typing import Any

import griffe

import kvcache._kvcache

STUBS = "kvcache._kvcache."


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.path.startswith(STUBS) and not obj.docstring:
            found = functools.reduce(lambda at, name: getattr(at, name, None), obj.path[len(STUBS) :].split("."),
                                     kvcache._kvcache)
            text = getattr(found, "__doc__", None) or ""
            while re.match(rf"{obj.name}\(", text):  # nanobind begins with the signatures, which the stubs have with types
                text = text.partition("\n")[2].lstrip("\n")
            obj.docstring = griffe.Docstring(text, parent=obj) if text else None
