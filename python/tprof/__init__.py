"""tprof from within a Python program: steps, ranges, values, schedules; and its reports.

Under ``tprof run -- python train.py`` the functions here name what the program does in the run that
is recorded; without tprof they return at once. The module needs no other package, and loads what it
needs when it is used.

    import tprof

    for batch in loader:
        with tprof.range("forward", batch=len(batch)):
            loss = model(batch)
        tprof.counter("loss", float(loss))
        tprof.step()

docs/python.md has all of it.
"""

from __future__ import annotations

from ._abi import counter, is_recording, mark, step
from ._control import snapshot, start, stop
from ._range import range  # noqa: A004

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from ._binary import TprofError as TprofError

_HOMES = {
    "TprofError": "_binary",
}
"""What is loaded when it is first used, and from where."""

__all__ = [
    "counter",
    "is_recording",
    "mark",
    "range",
    "snapshot",
    "start",
    "step",
    "stop",
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError("module 'tprof' has no attribute %r" % name)
    from importlib import import_module

    value = getattr(import_module("." + home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
