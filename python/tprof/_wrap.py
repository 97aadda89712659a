"""Wraps functions, generators and coroutines, so that an action runs before and after each of their runs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, TypeVar

    _F = TypeVar("_F", bound=Callable[..., Any])

# Code flags of CPython: CO_GENERATOR, CO_COROUTINE or CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR.
GENERATOR = 0x20
COROUTINE = 0x180
ASYNC_GENERATOR = 0x200


def _flags(function: Callable[..., Any]) -> int:
    """Returns the code flags of the function that a call runs."""
    while type(function).__name__ == "partial" and hasattr(function, "func"):
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", function)
    code = getattr(function, "__code__", None)
    return int(getattr(code, "co_flags", 0))


def wrapped(
    function: _F,
    begin: Callable[[], Any],
    end: Callable[[Any], Any],
    plain: Optional[Callable[[Callable[..., Any]], Callable[..., Any]]] = None,
) -> _F:
    """Returns the function with ``begin()`` before and ``end(begun)`` after each run. Runs of generators and
    coroutines last from the first value that is asked for to the end. ``plain`` wraps functions that are neither.

    Raises TypeError for a class and for an object that can't be called.
    """
    if isinstance(function, (staticmethod, classmethod)):
        inner = wrapped(function.__func__, begin, end, plain)
        return type(function)(inner)
    if isinstance(function, type) or not callable(function):
        raise TypeError("this decorates a function, not %r" % (function,))
    from functools import update_wrapper

    flags = _flags(function)
    if flags & ASYNC_GENERATOR:
        made = _async_generator(function, begin, end)
    elif flags & GENERATOR:
        made = _generator(function, begin, end)
        if flags & COROUTINE:
            from types import coroutine

            made = coroutine(made)
    elif flags & COROUTINE:
        made = _coroutine(function, begin, end)
    else:
        made = plain(function) if plain is not None else _function(function, begin, end)
    update_wrapper(made, function)
    return made  # type: ignore[return-value]


def _function(
    function: Callable[..., Any], begin: Callable[[], Any], end: Callable[[Any], Any]
) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        begun = begin()
        try:
            return function(*args, **kwargs)
        finally:
            end(begun)

    return inside


def _generator(
    function: Callable[..., Any], begin: Callable[[], Any], end: Callable[[Any], Any]
) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        begun = begin()
        try:
            return (yield from function(*args, **kwargs))
        finally:
            end(begun)

    return inside


def _coroutine(
    function: Callable[..., Any], begin: Callable[[], Any], end: Callable[[Any], Any]
) -> Callable[..., Any]:
    async def inside(*args: Any, **kwargs: Any) -> Any:
        begun = begin()
        try:
            return await function(*args, **kwargs)
        finally:
            end(begun)

    return inside


def _async_generator(
    function: Callable[..., Any], begin: Callable[[], Any], end: Callable[[Any], Any]
) -> Callable[..., Any]:
    async def inside(*args: Any, **kwargs: Any) -> Any:
        begun = begin()
        try:
            values = function(*args, **kwargs)
            turn = values.asend(None)
            while True:
                try:
                    value = await turn
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await values.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - the generator's own to handle
                    turn = values.athrow(error)
                else:
                    turn = values.asend(sent)
        finally:
            end(begun)

    return inside
