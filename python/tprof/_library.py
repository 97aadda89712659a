"""Makes builtins of the functions of tprof's library, which ``tprof run`` has loaded into this process."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

_NAMES = ("step", "mark", "counter", "push", "pop", "start", "end", "is_recording", "record", "flush")

# `struct tprof_python` of preload-shim/src/hooks/python.rs, after its size.
_OBJECTS = ("_Py_NoneStruct", "PyExc_TypeError")
_FUNCTIONS = (
    "Py_IncRef",
    "Py_DecRef",
    "PyUnicode_AsUTF8AndSize",
    "PyUnicode_AsEncodedString",
    "PyBytes_AsString",
    "PyBytes_Size",
    "PyLong_AsUnsignedLongLong",
    "PyLong_FromUnsignedLongLong",
    "PyBool_FromLong",
    "PyFloat_AsDouble",
    "PyErr_Occurred",
    "PyErr_ExceptionMatches",
    "PyErr_Clear",
    "PyErr_SetString",
    "PyTuple_Size",
    "PyTuple_GetItem",
)
# Offset of `python` in the table, in words: preload-shim/src/hooks/abi.rs.
_PYTHON_WORD = 11


def _versions() -> Tuple[str, str]:
    """Returns the installed version of the module, and the version of the library, which its path contains."""
    import os

    try:
        from importlib.metadata import version

        own = version("tprof")
    except Exception:  # noqa: BLE001 - not installed, but on PYTHONPATH
        own = "(unknown version)"
    for path in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if path.endswith("libtprof_preload.so"):
            return own, os.path.basename(os.path.dirname(path)).split("-")[0]
    return own, "(unknown version)"


def builtins() -> Tuple[Optional[Dict[str, Callable[..., Any]]], str]:
    """Returns the library's functions by their names. If that fails, returns None and the reason, which is empty if the
    library isn't loaded."""
    try:
        # `ctypes` is built on this module, and would take two thirds of the import time.
        from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_PYTHONAPI, CFuncPtr, _SimpleCData, addressof
        from _ctypes import dlopen, dlsym, sizeof  # type: ignore[attr-defined,unused-ignore]
    except Exception as error:  # noqa: BLE001 - some Pythons have no ctypes
        return None, "this Python has no ctypes (%s)" % error
    handle = dlopen(None, 0)  # type: ignore[arg-type,unused-ignore]
    try:
        table = dlsym(handle, "tprof_abi")
    except OSError:
        # tprof's library was not loaded into this process: it is static, or has another LD_PRELOAD.
        return None, ""

    class Word(_SimpleCData):  # type: ignore[type-arg,unused-ignore]
        _type_ = "L"

    class Text(_SimpleCData):  # type: ignore[type-arg,unused-ignore]
        _type_ = "z"

    class Object(_SimpleCData):  # type: ignore[type-arg,unused-ignore]
        _type_ = "O"

    class Make(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_PYTHONAPI
        _restype_ = Object
        _argtypes_ = (Word, Word, Object)

    class Methods(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_PYTHONAPI
        _restype_ = Word
        _argtypes_ = (Word,)

    def word_at(address: int) -> int:
        value: int = Word.from_address(address).value
        return value

    word = sizeof(Word)
    size = word_at(table)
    if size < (_PYTHON_WORD + 1) * word:
        return None, "the module is of tprof %s, and the run of tprof %s" % _versions()
    try:
        values: List[int] = [dlsym(handle, _OBJECTS[0]), word_at(dlsym(handle, _OBJECTS[1]))]
        values += [dlsym(handle, function) for function in _FUNCTIONS]
        make = Make(dlsym(handle, "PyCFunction_NewEx"))
    except OSError as error:
        return None, "this Python lacks a function (%s)" % error
    structure = (Word * (1 + len(values)))((1 + len(values)) * word, *values)
    methods = Methods(word_at(table + _PYTHON_WORD * word))(addressof(structure))
    if not methods:
        return None, "another Python of this process has tprof's functions"
    found = {}
    while True:
        # `PyMethodDef`: name, function, flags, doc.
        name = Text.from_address(methods).value
        if not name:
            break
        found[name.decode()] = make(methods, 0, "tprof")
        methods += 4 * word
    missing = [name for name in _NAMES if name not in found]
    return (None, "tprof's library has no " + ", ".join(missing)) if missing else (found, "")
