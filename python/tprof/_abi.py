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
    from typing import Any, Callable, Dict, Optional

_SESSION = "TPROF_SESSION"
"""The variable that every process under tprof has."""

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

    def flush(self) -> None:
        pass


def _explain(why: str) -> None:
    """One line on stderr: the module's marks are absent from a run that is being recorded."""
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
    # Called around a decorated function, where a Python frame would count against its recursion limit, so these are
    # builtins that do almost nothing.
    push: Callable[[str], Any] = callable
    pop: Callable[[], Any] = tuple
    start: Callable[[str], int] = callable
    end: Callable[[int], Any] = callable
else:
    step, mark, counter = _FOUND["step"], _FOUND["mark"], _FOUND["counter"]
    push, pop = _FOUND["push"], _FOUND["pop"]
    start, end = _FOUND["start"], _FOUND["end"]
    is_recording, record, flush = _FOUND["is_recording"], _FOUND["record"], _FOUND["flush"]
