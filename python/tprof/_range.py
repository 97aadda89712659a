"""``tprof.range``: a named span of the program, as a context manager or a decorator."""

from __future__ import annotations

import sys

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Dict, List, Optional, Type, TypeVar, Union

    _F = TypeVar("_F", bound=Callable[..., Any])

_ARGUMENTS = "\x1f"
"""Separates a span's name from its arguments: crates/wire/src/spans.rs."""
_LONGEST = 3800
"""The most bytes of a name with its arguments: preload-shim/include/tprof.h."""

_ON_STACK = -1

# Code flags of CPython: CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR. Frames of such code are
# left and entered again while it runs.
_SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200

_caller = sys._getframe


def _plain(value: object) -> Union[str, int, float, bool, None]:
    """Returns an argument as a JSON value. For other objects it returns the type, because their text may take
    long or change something."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return "<%s>" % type(value).__name__


def _with_arguments(name: str, args: Dict[str, Any]) -> str:
    import json

    plain = {key: _plain(value) for key, value in args.items()}
    name = name.replace(_ARGUMENTS, " ")
    room = _LONGEST - len(name.encode("utf-8", "backslashreplace")) - 1
    text = json.dumps(plain)
    left_out = 0
    while len(text) > room and plain:
        plain.popitem()
        left_out += 1
        text = json.dumps({**plain, "arguments left out": left_out})
    return name + _ARGUMENTS + text if len(text) <= room else name


class range:  # noqa: N801 - as torch.profiler.record_function
    """A span of the program: ``with tprof.range("forward"):``, or a decorator of a function.

    ``name`` is the span's text, of which 3,800 bytes of UTF-8 are kept. ``args`` are kept with each span: numbers,
    texts, booleans and None as they are, and other objects by their type. Each combination of name and arguments is
    a name of its own within tprof, which keeps 1,048,576 of them for a process; more are counted as lost.

    An argument ``category`` states the purpose of the time, and reports count the time for that cause: "data_load",
    "sync", "memory", "compute", "communication", "compile" or "io".

    In a plain function a span nests within the spans of its thread, and has the bytes that were allocated and the
    FLOPs that were done within it. In coroutines and generators it lasts from its beginning to its end, on whatever
    thread that is, and has neither. So does ``async with``. One object may be used several times, recursively and by
    several threads. Without tprof nothing is recorded.

    Raises TypeError if ``name`` isn't a str.
    """

    __slots__ = ("_name", "_open")

    def __init__(self, name: str, **args: Any) -> None:
        if not isinstance(name, str):
            raise TypeError("the name of a range must be a str, not %s" % type(name).__name__)
        self._name = _with_arguments(name, args) if args and _abi.UNDER_TPROF else name
        # For each open entry, the number of its span; _ON_STACK for those on a thread's stack.
        self._open: List[int] = []

    def __call__(self, function: _F) -> _F:
        return _decorated(self._name, function)

    def __enter__(self) -> "range":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        pass

    async def __aenter__(self) -> "range":
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._end()

    def _begin(self) -> None:
        self._open.append(_abi.start(self._name))

    def _end(self) -> None:
        if self._open:
            number = self._open.pop()
            if number == _ON_STACK:
                _abi.pop()
            else:
                _abi.end(number)

    if _abi.UNDER_TPROF and not TYPE_CHECKING:

        def __enter__(self):  # noqa: F811
            try:
                suspends = _caller(1).f_code.co_flags & _SUSPENDS
            except ValueError:  # called by no Python code
                suspends = 0
            if suspends:
                self._begin()
            else:
                self._open.append(_ON_STACK)
                _abi.push(self._name)
            return self

        def __exit__(self, kind, value, traceback):  # noqa: F811
            self._end()


def _decorated(name: str, function: _F) -> _F:
    """Returns the function within a range. It is wrapped without tprof too, so that recursion is as deep and
    tracebacks are the same."""
    from ._wrap import wrapped

    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        push, pop = _abi.push, _abi.pop

        def in_range(*args: Any, **kwargs: Any) -> Any:
            push(name)
            try:
                return function(*args, **kwargs)
            finally:
                pop()

        return in_range

    return wrapped(function, lambda: _abi.start(name), _abi.end, plain)
