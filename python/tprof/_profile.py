"""``tprof.profile``: torch.profiler's way to record a part of a program, within a run of tprof."""

from __future__ import annotations

import os
import socket
import sys
import time
from enum import Enum

from . import _abi, _control, _session
from ._binary import TprofError
from ._schedule import ProfilerAction, action_of
from ._wrap import wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Dict, Iterable, List, Optional, Type, TypeVar, Union

    from ._results import Averages, Results, Summary

    _F = TypeVar("_F", bound=Callable[..., Any])
    PathLike = Union[str, "os.PathLike[str]"]


class ProfilerActivity(Enum):
    """The kinds of data to record. Each value is the name that ``tprof run --activities`` takes."""

    CPU = "cpu"
    CUDA = "gpu"
    GPU = "gpu"
    MEM = "mem"


_NAMES = {name: member for name, member in ProfilerActivity.__members__.items()}


def activities_of(given: Optional[Iterable[Any]]) -> List[str]:
    """Returns the names that ``tprof run --activities`` takes for torch's activities, ours, or texts such as
    ``"CPU"``. The list is empty if none is given. Raises ValueError for an unknown activity."""
    names: List[str] = []
    for one in given or ():
        text = one if isinstance(one, str) else getattr(one, "name", None)
        member = _NAMES.get(text.upper()) if isinstance(text, str) else None
        if member is None:
            raise ValueError(
                "unknown activity %r; there are %s" % (one, ", ".join(sorted(_NAMES)))
            )
        if member.value not in names:
            names.append(member.value)
    return names


# Results that torch.profiler computes in the process, and the command or function that gives them.
_ELSEWHERE = {
    "events": "tprof.load(RUN).report('operators'), or tprof export RUN --to parquet",
    "export_stacks": "tprof export RUN --to folded",
    "export_memory_timeline": "tprof report memory RUN, tprof report device-memory RUN",
    "add_metadata": "tprof.mark(name)",
    "add_metadata_json": "tprof.mark(name)",
    "preset_metadata_json": "tprof.mark(name)",
    "toggle_collection_dynamic": "tprof.stop() and tprof.start()",
}

_explained = False


class _Elsewhere(TprofError, AttributeError):
    """The error for a member of torch.profiler's profile that tprof's lacks: ``hasattr`` returns False."""


class profile:  # noqa: N801 - as torch.profiler.profile
    """Records a part of the program, as ``torch.profiler.profile`` does. It is a context manager and a decorator,
    and has ``start()`` and ``stop()``.

    ``schedule`` maps a step's number to a ProfilerAction (``tprof.schedule``, or torch's own). Each call of
    ``step()`` ends a step. In steps that are not recorded, recording of this process is off; after the block it is
    as before. ``on_trace_ready(profile)`` is called after each cycle, in ``step()`` or at the end.

    ``tprof run`` decides what is recorded. If an argument asks for more than the run has, one line on stderr names
    the option: ``--activities`` for ``activities``, ``--operators shapes`` for ``record_shapes`` and
    ``with_flops``, ``--activities mem`` for ``profile_memory``, ``--modules`` for ``with_modules``. Stacks
    (``with_stack``) are recorded in any case. ``experimental_config``, ``execution_trace_observer`` and torch's
    other arguments are accepted and have no effect.

    ``summary()``, ``key_averages()``, ``findings()``, ``report(kind)``, ``device_time_ns`` and ``peak_bytes`` are
    results of the last recorded part, from the run in progress. The first result that you ask for waits for the
    device that the program uses and for the collector, and runs ``tprof report``, which takes tens of milliseconds
    in a short run. If you ask for none, nothing of this happens. An unknown value is None, with the reason in
    ``summary()["missing"]``.

    Without tprof nothing is recorded, and one line on stderr says how to record. The callbacks are called all the
    same, and the results are empty and give the reason.

    Raises ValueError if an activity is unknown, or if the schedule returns anything but a ProfilerAction.
    """

    def __init__(
        self,
        *,
        activities: Optional[Iterable[Any]] = None,
        schedule: Optional[Callable[[int], Any]] = None,
        on_trace_ready: Optional[Callable[["profile"], Any]] = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: Optional[bool] = None,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: Any = None,
    ) -> None:
        names = activities_of(activities)
        if profile_memory and names and "mem" not in names:
            names.append("mem")
        self.activities = names
        """Names of the activities that are asked for, as ``tprof run --activities`` takes them; empty for all."""
        self._arguments = {"activities": activities, "schedule": schedule,
                           "on_trace_ready": on_trace_ready, "record_shapes": record_shapes,
                           "profile_memory": profile_memory, "with_stack": with_stack,
                           "with_flops": with_flops, "with_modules": with_modules}
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        """Number of the current step, from 0."""
        self.cycle = 0
        """Number of parts recorded so far, which is the number of the last one."""
        self.partial = False
        """Whether the last part ended before the last step of its schedule."""
        self._schedule = schedule
        self._wants = _wants(names, record_shapes or with_flops, with_modules)
        self._records = False
        self._is_started = False
        self._was_on = True
        self._from_ns = self._to_ns = 0
        self._results: Optional[Results] = None
        self.current_action = self._action()

    def __enter__(self) -> "profile":
        self.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.stop()

    def __call__(self, function: _F) -> _F:
        def begin() -> profile:
            return self.again().__enter__()

        return wrapped(function, begin, lambda begun: begun.stop())

    def again(self) -> "profile":
        """Returns a profile with the same arguments that has not been started."""
        return profile(**self._arguments)  # type: ignore[arg-type]

    def start(self) -> None:
        """Begins the first step, which has the number 0. Raises RuntimeError if the profile has been started."""
        if self._is_started:
            raise RuntimeError("this profile has been started already")
        _explain(self._wants)
        self._is_started = True
        self._was_on = _control.switch(self.current_action.records)
        if self.current_action.records:
            self._begin_part()
        if self._schedule is not None:
            _abi.step(self.step_num)

    def step(self) -> None:
        """Ends the current step and begins the next one. Outside of the block it only counts."""
        before = self.current_action
        self.step_num += 1
        self.current_action = self._action()
        if not self._is_started:
            return
        # The mark between two steps is set while recording is on: before it stops, or after it starts.
        is_recorded = self._records
        if is_recorded:
            _abi.step(self.step_num)
        if self._records and (
            before is ProfilerAction.RECORD_AND_SAVE or not self.current_action.records
        ):
            # A caller's schedule may leave RECORD without saving; then nothing is ready.
            is_ready = before is ProfilerAction.RECORD_AND_SAVE
            self._end_part(is_ready, False, self.current_action.records)
        if self.current_action.records and not self._records:
            self._begin_part()
        if not is_recorded:
            _abi.step(self.step_num)

    def stop(self) -> None:
        """Ends the current step and the profile. Does nothing if the profile has not been started."""
        if not self._is_started:
            return
        self._is_started = False
        try:
            if self._records:
                self._end_part(True, self._schedule is not None, self._was_on)
            elif self.cycle == 0 and _abi.UNDER_TPROF:
                _print(
                    "a profile ended in step %d, before its schedule records any%s"
                    % (self.step_num, _plan(self._schedule))
                )
        finally:
            _control.switch(self._was_on)

    def export_chrome_trace(self, path: PathLike) -> None:
        """Makes ``tprof run`` write the last recorded part of this rank as Chrome's JSON, compressed if the path ends
        in ``.gz``. It is written **after the job**, when all records are there. An existing file is replaced. Without
        tprof nothing is written."""
        self._export("chrome", os.path.abspath(os.fspath(path)))

    def summary(self) -> Summary:
        """Returns figures of the last recorded part. They are a dictionary, and ``str()`` of it is a text:
        ``wall_ns``, ``device_time_ns``, ``peak_bytes``, ``allocated_bytes``, ``findings`` (headlines), ``notes``, and
        ``missing``, which has the reason for each figure that is None."""
        from ._results import summary

        return summary(self._ask())

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Averages:
        """Returns rows by name, like torch.profiler: operators (with ``tprof run --operators shapes``), ranges and
        kernels, with ``calls`` and times on the host and on devices. ``table()`` prints them.
        ``group_by_input_shape`` gives each combination of input sizes a row of its own. Operators have no stacks, so
        ``group_by_stack_n`` has no effect, and a line on stderr says so."""
        from ._results import averages

        if group_by_stack_n:
            _print("operators have no stacks: group_by_stack_n has no effect")
        return averages(self._ask(), group_by_input_shape)

    def findings(self) -> List[Dict[str, Any]]:
        """Returns the causes of lost time in the last recorded part, the largest gain first: ``headline``, ``rule``,
        ``severity``, ``gain_ns``, ``try``, …"""
        return self._ask().table("findings", "findings")

    def report(self, kind: str = "summary", *options: str) -> Dict[str, Any]:
        """Returns any report of the last recorded part, in the form that ``tprof report KIND --json`` prints.
        ``options`` are those of ``tprof report``. Raises TprofError."""
        return self._ask().report(kind, *options)

    @property
    def device_time_ns(self) -> Optional[int]:
        """Time in which devices had work in the last recorded part, in nanoseconds; None if no device was recorded."""
        return self._ask().device_time_ns()

    @property
    def peak_bytes(self) -> Optional[int]:
        """The most live bytes of the heap in the last recorded part; None if that is unknown."""
        return self._ask().peak_bytes()

    def _ask(self) -> Results:
        """Returns the results of the last recorded part, or of the part that is being recorded, up to now."""
        from ._results import of_part

        if self._records:
            return of_part(self._from_ns, time.monotonic_ns())
        if self._results is None:
            self._results = of_part(self._from_ns, self._to_ns)
        return self._results

    def _export(self, to: str, path: str) -> bool:
        """Asks for an export of the last part. Returns whether the export will be made."""
        directory = _session.run_directory()
        if directory is None:
            return False
        if self.cycle == 0 and not self._records:
            _print("nothing was recorded yet: `%s` will not be written" % path)
            return False
        request = {
            "session": os.environ.get("TPROF_SESSION", ""),
            "host": socket.gethostname(),
            "format": to,
            "path": path,
            "rank": _session.rank(),
            "from_ns": self._from_ns,
            "to_ns": time.monotonic_ns() if self._records else self._to_ns,
        }
        try:
            _session.request_export(request)
        except OSError as error:
            _print("cannot ask the run for `%s`: %s" % (path, error))
            return False
        return True

    def __getattr__(self, name: str) -> Any:
        if name in _ELSEWHERE:
            raise _Elsewhere(
                "torch.profiler's %s is computed from what it keeps in the process; tprof keeps it in "
                "the run: %s" % (name, _ELSEWHERE[name])
            )
        raise AttributeError("'profile' object has no attribute %r" % name)

    def _action(self) -> ProfilerAction:
        if self._schedule is None:
            return ProfilerAction.RECORD
        return action_of(self._schedule(self.step_num))

    def _begin_part(self) -> None:
        self._records = True
        self._results = None
        self._from_ns = time.monotonic_ns()
        _control.switch(True)
        _abi.mark("cycle %d: step %d (tprof.profile)" % (self.cycle + 1, self.step_num))

    def _end_part(self, is_ready: bool, partial: bool, goes_on: bool) -> None:
        self._records = False
        self._to_ns = time.monotonic_ns()
        _control.switch(goes_on)
        self.cycle += 1
        self.partial = partial
        if is_ready and self.on_trace_ready is not None:
            self.on_trace_ready(self)


def tensorboard_trace_handler(
    dir_name: PathLike, worker_name: Optional[str] = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Returns a function for ``on_trace_ready``, which writes traces into a directory for the PyTorch profiler
    plugin of TensorBoard. A trace is named ``WORKER.TIME.pt.trace.json``, with ``.gz`` if ``use_gzip`` is set;
    TIME is in nanoseconds since 1970. The traces are written after the job. ``worker_name`` is host and process by
    default."""

    def handle(of: profile) -> None:
        if not _abi.UNDER_TPROF:
            return
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or "%s_%d" % (socket.gethostname(), os.getpid())
        name = "%s.%d.pt.trace.json%s" % (worker, time.time_ns(), ".gz" if use_gzip else "")
        of.export_chrome_trace(os.path.join(os.fspath(dir_name), name))

    return handle


def _wants(names: List[str], shapes: bool, modules: bool) -> List[str]:
    """Returns the options of ``tprof run`` beyond its defaults that record what is asked for."""
    options: List[str] = []
    if shapes:
        options += ["--operators", "shapes"]
    if modules:
        options.append("--modules")
    return options + ["+" + name for name in names]


def _explain(wants: List[str]) -> None:
    """Prints, once, how to record, or which options the run lacks that a profile asks for."""
    global _explained
    if _explained:
        return
    _explained = True
    options = [word for word in wants if not word.startswith("+")]
    if not _abi.UNDER_TPROF:
        if os.environ.get("TPROF_SESSION") is None:
            command = " ".join(["tprof run", *options, "-- python ..."])
            _print("nothing is recorded; to record this: %s" % command)
        return
    import json

    try:
        run = json.loads(os.environ.get("TPROF_OPTIONS", "{}"))
    except ValueError:
        return
    lacks = []
    if "--operators" in options and run.get("operators") != "shapes":
        lacks.append("--operators shapes")
    if "--modules" in options and not run.get("modules"):
        lacks.append("--modules")
    activities = run.get("activities") or []
    missing = [word[1:] for word in wants if word[0] == "+" and word[1:] not in activities]
    if activities and missing:
        lacks.append("--activities " + ",".join([*activities, *missing]))
    if lacks:
        _print("a profile asks for more than this run records: tprof run %s" % " ".join(lacks))


def _plan(schedule: Any) -> str:
    from ._schedule import schedule as own

    return ": it %s" % schedule if isinstance(schedule, own) else ""


def _print(text: str) -> None:
    try:
        sys.stderr.write("tprof: %s\n" % text)
    except Exception:  # noqa: BLE001 - no stderr, or a closed one
        pass
