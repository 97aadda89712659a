"""tprof from within a Python program: steps, ranges, values, schedules and reports.

Under ``tprof run -- python train.py`` the functions of this module name what the program does in the run
that is recorded. Without tprof they return at once. The module needs no other package, and loads its parts
when they are used.

    import tprof

    for batch in loader:
        with tprof.range("forward", batch=len(batch)):
            loss = model(batch)
        tprof.counter("loss", float(loss))
        tprof.step()

docs/python.md describes every function.
"""

from __future__ import annotations

from ._abi import counter, is_recording, mark, step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from ._arguments import ProfilerContext as ProfilerContext
    from ._arguments import add_arguments as add_arguments
    from ._arguments import create_profiler_from_args as create_profiler_from_args
    from ._arguments import from_args as from_args
    from ._arguments import profile_function as profile_function
    from ._binary import TprofError as TprofError
    from ._control import snapshot as snapshot
    from ._control import start as start
    from ._control import stop as stop
    from ._flops import Flops as Flops
    from ._flops import flops as flops
    from ._histogram import histogram as histogram
    from ._load import Run as Run
    from ._load import load as load
    from ._measure import Comparison as Comparison
    from ._measure import Distribution as Distribution
    from ._measure import compare as compare
    from ._measure import run as run
    from ._profile import ProfilerActivity as ProfilerActivity
    from ._profile import profile as profile
    from ._profile import tensorboard_trace_handler as tensorboard_trace_handler
    from ._memory import MemoryTracker as MemoryTracker
    from ._range import range as range  # noqa: A004
    from ._schedule import ProfilerAction as ProfilerAction
    from ._schedule import schedule as schedule
    from ._under import exec_under as exec_under

_HOMES = {
    name: home
    for home, names in {
        "_arguments": "ProfilerContext add_arguments create_profiler_from_args from_args profile_function",
        "_binary": "TprofError",
        "_control": "snapshot start stop",
        "_flops": "Flops flops",
        "_histogram": "histogram",
        "_load": "Run load",
        "_memory": "MemoryTracker",
        "_measure": "Comparison Distribution compare run",
        "_profile": "ProfilerActivity profile tensorboard_trace_handler",
        "_range": "range",
        "_schedule": "ProfilerAction schedule",
        "_under": "exec_under",
    }.items()
    for name in names.split()
}
"""The modules from which names are loaded when they are first used."""

__all__ = ["counter", "is_recording", "mark", "step", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError("module 'tprof' has no attribute %r" % name)
    from importlib import import_module

    value = getattr(import_module("." + home, __name__), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Registers the cell magic ``%%tprof``, which samples one cell: IPython calls this for ``%load_ext tprof``."""
    from ._notebook import load_ipython_extension as load

    load(shell)


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
