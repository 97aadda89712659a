"""The functions of tprof in this process: builtins of its library, or functions that do nothing.

``tprof run`` loads a library into the job, and the library exports a table of functions. Where the table
exists, Python builtins are made from it (no compiled file, no call through ctypes). Elsewhere the functions
below return at once. Both refuse the same arguments, so that a program behaves alike with and without tprof.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

_SESSION = "TPROF_SESSION"
"""The variable that is set in every process under tprof."""

class _Absent:
    """The functions of a process without tprof. They are bound methods, because a program may store one as an attribute
    of a class: like a builtin, and unlike a function, a bound method then doesn't get the object as its first
    argument."""

    def step(self, n: Optional[int] = None) -> None:
        """Begins a training step, which lasts until the next one begins. ``n`` is its number, from 0 to
        2**64 - 2. Without ``n``, or if ``n`` isn't such an int, tprof counts the steps from 0."""

    def mark(self, name: str, /) -> None:
        """Names this instant. The first 3,800 bytes of the name in UTF-8 are kept. Raises TypeError if the name
        isn't a str."""
        if not isinstance(name, str):
            raise TypeError("a name must be str")

    def counter(self, name: str, value: float, /) -> None:
        """Records a value at this instant, for curves over time. A value that float() refuses is recorded as
        NaN. Raises TypeError if the name isn't a str."""
        if not isinstance(name, str):
            raise TypeError("a name must be str")

    def is_recording(self) -> bool:
        """Returns whether this process is recorded at this moment. The result is False without tprof, after ``stop()``
        or ``tprof ctl stop``, and outside the steps of a schedule."""
        return False

    def record(self, on: int, /) -> bool:
        return False

    def flush(self) -> None:
        pass


def _explain(why: str) -> None:
    """Prints one line on stderr: the run is being recorded without the marks of this module."""
    try:
        sys.stderr.write("tprof: Python's marks and ranges are not recorded: %s\n" % why)
    except Exception:  # noqa: BLE001 - no stderr, or a closed one
        pass


_FOUND: Optional[Dict[str, Callable[..., Any]]] = None
if _SESSION in os.environ:
    from ._library import builtins

    _FOUND, _why = builtins()
    if _why:
        _explain(_why)

UNDER_TPROF: bool = _FOUND is not None
"""Whether this process runs under ``tprof run``, and its marks are recorded."""

_absent = _Absent()
if _FOUND is None:
    step: Callable[..., None] = _absent.step
    mark: Callable[[str], None] = _absent.mark
    counter: Callable[[str, float], None] = _absent.counter
    is_recording: Callable[[], bool] = _absent.is_recording
    record: Callable[[int], bool] = _absent.record
    flush: Callable[[], None] = _absent.flush
    # Decorated functions call these. A function in Python would add a frame, which counts against the recursion limit,
    # so builtins that do almost nothing stand in.
    push: Callable[[str], Any] = callable
    pop: Callable[[], Any] = tuple
    start: Callable[[str], int] = callable
    end: Callable[[int], Any] = callable
else:
    step, mark, counter = _FOUND["step"], _FOUND["mark"], _FOUND["counter"]
    push, pop = _FOUND["push"], _FOUND["pop"]
    start, end = _FOUND["start"], _FOUND["end"]
    is_recording, record, flush = _FOUND["is_recording"], _FOUND["record"], _FOUND["flush"]
