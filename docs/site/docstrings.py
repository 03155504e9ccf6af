"""An extension of griffe: the docstrings of the extension module, which its types in _kvcache.pyi lack.

It also adds the methods that the types have only as overloads.
"""

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

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for name, forms in cls.overloads.items():
            if cls.path.startswith(STUBS) and name not in cls.members:
                cls.set_member(name, forms[0])
                forms[0].overloads = list(forms)
                self.on_instance(obj=forms[0])
