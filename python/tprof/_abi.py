"""The functions of tprof in this process: builtins of its library, or ones that do nothing.

``tprof run`` loads a library into the job, which exports a table of functions. Where the table is
there, Python builtins are made from it (no compiled file, no call through ctypes); where it is not,
the functions below return at once. Both refuse the same arguments, so that a program behaves alike
with and without tprof.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

_SESSION = "TPROF_SESSION"
"""The variable that every process under tprof has."""

_NAMES = ("step", "mark", "counter", "push", "pop", "start", "end", "is_recording", "record")

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
# Where `python` lies in the table, in words: preload-shim/src/hooks/abi.rs.
_PYTHON_WORD = 11


class _Absent:
    """What there is without tprof. Its methods are bound: as builtins, they do not bind again where
    they are put into a class."""

    def step(self, n: Optional[int] = None) -> None:
        """Begins a training step, which lasts until the next one does. ``n`` is its number, 0 to
        2**64 - 2; without one (and for anything else than such an int) steps are counted from 0."""

    def mark(self, name: str, /) -> None:
        """Names this instant. Of the name 3,800 bytes of UTF-8 are kept. Raises TypeError if it is
        not str."""
        if not isinstance(name, str):
            raise TypeError("a name must be str")

    def counter(self, name: str, value: float, /) -> None:
        """Records a value of this instant, for curves over time. A value that float() refuses is
        recorded as no number (NaN). Raises TypeError if the name is not str."""
        if not isinstance(name, str):
            raise TypeError("a name must be str")

    def is_recording(self) -> bool:
        """Whether this process is recorded at this moment: False without tprof, after ``stop()``,
        ``tprof ctl stop`` or outside of a schedule's steps."""
        return False

    def record(self, on: int, /) -> bool:
        return False


def _builtins() -> Tuple[Optional[Dict[str, Callable[..., Any]]], str]:
    """The library's functions; none without tprof, and why not if tprof should be there."""
    if _SESSION not in os.environ:
        return None, ""
    try:
        import ctypes

        table = ctypes.addressof(ctypes.c_size_t.in_dll(ctypes.CDLL(None), "tprof_abi"))
    except ValueError:
        # A process that tprof's library was not loaded into: static, or with another LD_PRELOAD.
        return None, ""
    except Exception as error:  # noqa: BLE001 - some Pythons have no ctypes
        return None, "this Python has no ctypes (%s)" % error
    word = ctypes.sizeof(ctypes.c_size_t)
    size = ctypes.c_size_t.from_address(table).value
    if size < (_PYTHON_WORD + 1) * word:
        return None, "the module is newer than the tprof that runs (its table has %d bytes)" % size
    python = ctypes.pythonapi
    try:
        values: List[int] = [ctypes.addressof(ctypes.c_char.in_dll(python, _OBJECTS[0]))]
        values.append(ctypes.c_size_t.in_dll(python, _OBJECTS[1]).value)
        for function in _FUNCTIONS:
            values.append(ctypes.cast(getattr(python, function), ctypes.c_void_p).value or 0)
        make = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object
        )(("PyCFunction_NewEx", python))
    except (AttributeError, ValueError) as error:
        return None, "this Python lacks a function (%s)" % error
    structure = (ctypes.c_size_t * (1 + len(values)))((1 + len(values)) * word, *values)
    address = ctypes.c_size_t.from_address(table + _PYTHON_WORD * word).value
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    methods = prototype(address)(ctypes.addressof(structure))
    if not methods:
        return None, "another Python of this process has tprof's functions"
    found = {}
    while True:
        # `PyMethodDef`: name, function, flags, doc.
        name = ctypes.c_char_p.from_address(methods).value
        if not name:
            break
        found[name.decode()] = make(methods, None, "tprof")
        methods += 4 * word
    missing = [name for name in _NAMES if name not in found]
    return (None, "tprof's library has no " + ", ".join(missing)) if missing else (found, "")


def _explain(why: str) -> None:
    """One line on stderr: the module's marks are absent from a run that is being recorded."""
    try:
        sys.stderr.write("tprof: Python's marks and ranges are not recorded: %s\n" % why)
    except Exception:  # noqa: BLE001 - no stderr, or a closed one
        pass


_FOUND, WHY = _builtins()
if WHY:
    _explain(WHY)

UNDER_TPROF: bool = _FOUND is not None
"""Whether this process runs under ``tprof run``, and its marks are recorded."""

_absent = _Absent()
if _FOUND is None:
    step: Callable[..., None] = _absent.step
    mark: Callable[[str], None] = _absent.mark
    counter: Callable[[str, float], None] = _absent.counter
    is_recording: Callable[[], bool] = _absent.is_recording
    record: Callable[[int], bool] = _absent.record
    # Around a decorated function, where a frame of Python's would count against its recursion:
    # builtins that do next to nothing.
    push: Callable[[str], Any] = callable
    pop: Callable[[], Any] = tuple
    start: Callable[[str], int] = callable
    end: Callable[[int], Any] = callable
else:
    step, mark, counter = _FOUND["step"], _FOUND["mark"], _FOUND["counter"]
    push, pop = _FOUND["push"], _FOUND["pop"]
    start, end = _FOUND["start"], _FOUND["end"]
    is_recording, record = _FOUND["is_recording"], _FOUND["record"]
