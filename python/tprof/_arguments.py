"""Profiles a program by flags of its own command line, and around functions."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import _abi, _binary, _control, _session
from ._profile import _NAMES, _print, profile
from ._schedule import schedule
from ._wrap import wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Type, TypeVar, Union

    _F = TypeVar("_F", bound=Callable[..., Any])
    PathLike = Union[str, "os.PathLike[str]"]

_DIRECTORY = "CACHE_DIT_TORCH_PROFILER_DIR"
"""The variable that cache-dit reads if --profile-dir isn't given."""
_PARTS = {"wait": 0, "warmup": 1, "active": 3, "repeat": 1}
"""The defaults of a schedule's parts, if one of them is given."""
_NOT_RECORDED = "nothing-was-recorded"
"""The trace's path if there will be no trace: a program that prints the path must not name a file that is
never written."""


_TRUE, _FALSE = ("=True", "=true", "=1"), ("=False", "=false", "=0")


class _Boolean(argparse.Action):
    """A flag without a value. It is True, or False in the forms ``--no-…`` and ``…=False``."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **kwargs)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> None:
        option = option_string or ""
        setattr(namespace, self.dest, not (option.startswith("--no-") or option.endswith(_FALSE)))


def _add_boolean(group: argparse._ArgumentGroup, name: str, default: bool, text: str) -> None:
    """Adds both forms of a flag, and the forms with ``=True`` and ``=False``, which the help doesn't list. A
    flag that took a value would take the next word of the command line."""
    group.add_argument("--" + name, "--no-" + name, action=_Boolean, default=default, help=text)
    others = ["--%s%s" % (name, value) for value in _TRUE + _FALSE]
    dest = name.replace("-", "_")
    group.add_argument(*others, dest=dest, action=_Boolean, default=default, help=argparse.SUPPRESS)


def _steps(least: int) -> Callable[[str], int]:
    def steps(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError("%r is not a number of steps; it must be %d or more" % (text, least))
        return int(text)

    return steps


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds cache-dit's profiling flags to a parser and returns the parser. The flags are ``--profile``,
    ``--profile-name``, ``--profile-dir``, ``--profile-activities``, ``--profile-with-stack``,
    ``--profile-record-shapes``, ``--profile-wait``, ``--profile-warmup``, ``--profile-active``,
    ``--profile-repeat`` and ``--track-memory``. Give the parsed arguments to ``from_args``.

    A script that finds ``--profile`` on its own command line and runs without tprof is started again under ``tprof
    run``, as by ``exec_under``: everything that the script did before it parsed the flags is done twice. The script is
    not started again if it is one of several ranks, if its Python is interactive, if ``TPROF_ENABLED=0`` is set, or if
    the program ``tprof`` isn't found. One line on stderr then says how to record."""
    group = parser.add_argument_group(
        "profiling", "--profile starts the script under `tprof run`, unless it runs under it"
    )
    group.add_argument("--profile", action="store_true", help="record the profiled part")
    group.add_argument("--profile-name", metavar="NAME", help="name of its files [default: the run's]")
    group.add_argument(
        "--profile-dir",
        metavar="DIR",
        help="directory of its files [default: $%s, or the run's directory]" % _DIRECTORY,
    )
    group.add_argument(
        "--profile-activities",
        nargs="+",
        type=str.upper,
        choices=sorted(_NAMES),
        default=["CPU", "GPU"],
        help="what to record [default: CPU GPU]",
    )
    _add_boolean(group, "profile-with-stack", False, "stacks [default: no]")
    _add_boolean(group, "profile-record-shapes", True, "sizes of tensors [default: yes]")
    for part, default in _PARTS.items():
        group.add_argument(
            "--profile-" + part,
            metavar="N",
            type=_steps(1 if part == "active" else 0),
            help="record by steps: schedule's %s [default: %d, if another part is given]"
            % (part, default),
        )
    group.add_argument(
        "--track-memory", action="store_true", help="write what is held at the end of the block"
    )
    parse = parser.parse_known_args

    def parse_and_record(*args: Any, **kwargs: Any) -> Any:
        parsed = parse(*args, **kwargs)
        _start_again(parsed[0])
        return parsed

    # Only this method is replaced, because `parse_args` and the parsers of subcommands call it too.
    parser.parse_known_args = parse_and_record  # type: ignore[method-assign,assignment]
    return parser


def _start_again(args: argparse.Namespace) -> None:
    """Starts the script again under ``tprof run``, if its own command line asks for a profile that
    would not be recorded."""
    if not getattr(args, "profile", False) or "--profile" not in sys.argv[1:]:
        return
    # Each worker would create a run of its own; run the launcher of all workers under tprof instead.
    if os.environ.get("WORLD_SIZE", "1") != "1" or "TPROF_SESSION" in os.environ:
        return
    from ._under import exec_under

    options = ["--operators", "shapes"] if getattr(args, "profile_record_shapes", True) else []
    try:
        exec_under(*options)
    except (_binary.TprofError, OSError) as error:
        _print("cannot start this script under tprof: %s" % error)


class ProfilerContext:
    """Records a block. ``tprof run`` writes its trace after the job as
    ``OUTPUT_DIR/NAME-rankN.trace.json.gz``, and the traces of later parts with ``NAME.2`` and so on. No file is
    overwritten. All ranks of a run share NAME, which is the run's by default. If ``enabled`` is False or tprof
    is absent, nothing is recorded and ``trace_path`` is ``nothing-was-recorded``.

    ``activities`` are any of CPU, GPU, CUDA and MEM. With MEM or ``track_memory``, the live bytes at the end
    are written to ``NAME-rankN.memory.json``, and in PyTorch's form to ``NAME-rankN.memory.pickle``
    (``tprof.snapshot``). With ``wait``, ``warmup``, ``active`` or ``repeat``, which are numbers of steps as in
    ``tprof.schedule``, it records by steps; each call of ``step()`` ends a step. Raises ValueError if an
    activity is unknown or a number of steps is out of range.
    """

    def __init__(
        self,
        enabled: bool = True,
        activities: Optional[Iterable[Any]] = None,
        output_dir: Optional[PathLike] = None,
        profile_name: Optional[str] = None,
        with_stack: bool = False,
        record_shapes: bool = True,
        *,
        wait: Optional[int] = None,
        warmup: Optional[int] = None,
        active: Optional[int] = None,
        repeat: Optional[int] = None,
        track_memory: bool = False,
    ) -> None:
        run = _session.run_directory()
        given = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        parts = {name: value for name, value in given.items() if value is not None}
        wanted = list(activities) if activities is not None else ["CPU", "GPU"]
        self.enabled = enabled
        self.profile_name = profile_name or Path(run or "profile").name
        self.output_dir = Path(output_dir or os.environ.get(_DIRECTORY) or run or "tprof-profiles").absolute()
        """Directory of the files."""
        self._profiler = profile(
            activities=wanted,
            schedule=schedule(**{**_PARTS, **parts}) if parts else None,
            on_trace_ready=self._ready,
            record_shapes=record_shapes,
            profile_memory="MEM" in wanted,
            with_stack=with_stack,
        )
        self._tracks_memory = track_memory or (enabled and "mem" in self._profiler.activities)
        # Depth of nested calls of a decorated function: only the outermost call of a recursive function is recorded.
        self._depth = 0
        self._number = self._free()
        records = enabled and _abi.UNDER_TPROF
        self.trace_path = self._path("trace.json.gz") if records else Path(_NOT_RECORDED)
        """Path of the last part's trace, or of the first part's before there is one. It is written after the job.
        If there will be no trace, it is ``nothing-was-recorded``."""
        self.memory_path = self._path("memory.json")
        """Path of the JSON with the memory that is held at the end of the block, if memory is tracked."""
        self.snapshot_path = self._path("memory.pickle")
        """Path of this process's held memory in PyTorch's form (``tprof.snapshot``)."""

    def __enter__(self) -> "ProfilerContext":
        self._depth += 1
        if self.enabled and self._depth == 1:
            self._profiler = self._profiler.again()
            self._profiler.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._profiler.stop()
        if self._profiler.cycle == 0:
            self.trace_path = Path(_NOT_RECORDED)
        if self._tracks_memory and _abi.UNDER_TPROF:
            self._write_memory()

    def _write_memory(self) -> None:
        from . import _snapshot

        path = self.memory_path
        try:
            self.output_dir.mkdir(parents=True, exist_ok=True)
            held = _control.snapshot(path)
            path = self.snapshot_path
            if held is not None:
                _snapshot.write(str(path), held, _session.rank())
        except (RuntimeError, OSError) as error:
            _print("cannot write `%s`: %s" % (path, error))

    def __call__(self, function: _F) -> _F:
        return wrapped(function, self.__enter__, lambda begun: begun.__exit__(None, None, None))

    def step(self) -> None:
        """Ends the current step and begins the next one."""
        if self.enabled:
            self._profiler.step()

    def _ready(self, of: profile) -> None:
        if not _abi.UNDER_TPROF:
            return
        path = self._path("trace.json.gz")
        self._number += 1
        try:
            self.output_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _print("cannot create `%s`: %s" % (self.output_dir, error))
            self.trace_path = Path(_NOT_RECORDED)
            return
        self.trace_path = path if of._export("chrome", str(path)) else Path(_NOT_RECORDED)

    def _path(self, ending: str) -> Path:
        number = "" if self._number == 1 else ".%d" % self._number
        name = "%s%s-rank%d.%s" % (self.profile_name, number, _session.rank(), ending)
        return self.output_dir / name

    def _free(self) -> int:
        """Returns the first number for which no earlier run left files."""
        self._number = 1
        while any(self._path(ending).exists() for ending in ("trace.json.gz", "memory.json", "memory.pickle")):
            self._number += 1
        return self._number


def from_args(args: argparse.Namespace, name: Optional[str] = None) -> ProfilerContext:
    """Returns the context that the flags of ``add_arguments`` ask for. ``name`` is used if
    ``--profile-name`` isn't given. Flags that ``args`` lacks have their defaults. Without ``--profile`` the
    context records nothing; ``--track-memory`` works all the same."""

    def flag(flag_name: str, default: Any = None) -> Any:
        return getattr(args, flag_name, default)

    parts: Dict[str, Any] = {part: flag("profile_" + part) for part in _PARTS}
    return ProfilerContext(
        enabled=bool(flag("profile", False)),
        activities=flag("profile_activities"),
        output_dir=flag("profile_dir"),
        profile_name=flag("profile_name") or name,
        with_stack=bool(flag("profile_with_stack", False)),
        record_shapes=bool(flag("profile_record_shapes", True)),
        track_memory=bool(flag("track_memory", False)),
        **parts,
    )


def create_profiler_from_args(
    args: argparse.Namespace, profile_name: Optional[str] = None
) -> ProfilerContext:
    """Does the same as ``from_args``, under cache-dit's name."""
    return from_args(args, profile_name)


def profile_function(
    enabled: bool = True, profile_name: Optional[str] = None, **arguments: Any
) -> Callable[[_F], _F]:
    """Returns a decorator that records each call of a function as ``ProfilerContext`` does, under the
    function's name if none is given. ``arguments`` are those of ``ProfilerContext``. Coroutines and generators
    are recorded to their end."""

    def decorate(function: _F) -> _F:
        name = profile_name or getattr(function, "__name__", "profile")
        if not enabled:
            return function
        return ProfilerContext(True, profile_name=name, **arguments)(function)

    return decorate
