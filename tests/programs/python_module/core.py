"""Uses marks, counters, steps, ranges, `start` and `stop` of the module `tprof`, with valid and invalid arguments.
The program prints the same with and without a recording.
"""

import sys

before = set(sys.modules)
import tprof

# In a process that isn't recorded, importing `tprof` loads only modules of its own.
if not tprof.is_recording():
    loaded = set(sys.modules) - before - {"__future__"}
    assert all(name.startswith("tprof") for name in loaded), loaded

import asyncio
import atexit
import os
import threading
import traceback

LONG = "\u00e9" * 10000


def refused(call):
    try:
        call()
    except TypeError:
        print("refused")
    else:
        print("taken")  # The call was accepted.


def arguments():
    for call in (
        lambda: tprof.mark(3),
        lambda: tprof.mark(),
        lambda: tprof.mark(name="by keyword"),
        lambda: tprof.counter("x", value=1),
        lambda: tprof.counter("x", 1, 2),
        lambda: tprof.step(1, 2),
        lambda: tprof.step(m=3),
        lambda: tprof.step(1, n=3),
        lambda: tprof.counter("x"),
        lambda: tprof.counter(3, 4.0),
        lambda: tprof.range(3),
        lambda: tprof.range("x")(int),
        lambda: tprof.range("x")(7),
        lambda: tprof.is_recording(1),
    ):
        refused(call)
    for n in (None, "x", -1, 2**70, 1.5, object()):
        tprof.step(n)
    tprof.step(n=100)
    tprof.step(101)
    tprof.mark("surrogate \ud800")
    tprof.mark(LONG)
    tprof.mark("")
    tprof.counter("no number", "x")
    tprof.counter("no number", 10**400)
    tprof.counter("loss", 7)
    tprof.counter("loss", 0.5)


class Recursive:
    @tprof.range("recursive")
    def depth(self, n):
        try:
            return self.depth(n + 1)
        except RecursionError:
            return n

    @tprof.range("static")
    @staticmethod
    def static(value):
        return value

    @tprof.range("class")
    @classmethod
    def of_class(cls):
        return cls.__name__


@tprof.range("fails")
def fails(what):
    """Raises a ValueError."""
    raise ValueError(what)


@tprof.range("generator", batch=3, where="gpu", of=object(), nan=float("nan"))
def generator():
    try:
        got = yield 1
        print("got", got)
        got = yield 2
        print("got", got)
    except KeyError as error:
        print("thrown", error)
        yield 3
    finally:
        print("closed")
    return 4


@tprof.range("asynchronous generator")
async def asynchronous():
    try:
        got = yield 1
        print("got", got)
        yield 2
    except KeyError as error:
        print("thrown", error)
        yield 3
    finally:
        print("closed")


@tprof.range("coroutine")
async def coroutine(number):
    with tprof.range("within", number=number):
        await asyncio.sleep(0.001 * (3 - number))
    async with tprof.range("async with"):
        await asyncio.sleep(0.001)
    return number


async def tasks():
    print(await asyncio.gather(*[coroutine(number) for number in range(3)]))
    values = asynchronous()
    print(await values.asend(None), await values.asend("a"))
    print([value async for value in asynchronous()])
    values = asynchronous()
    print(await values.asend(None), await values.athrow(KeyError("k")))
    await values.aclose()
    task = asyncio.ensure_future(coroutine(0))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")


def functions():
    print(fails.__name__, fails.__doc__, asyncio.iscoroutinefunction(coroutine))
    try:
        with tprof.range("around"):
            fails("\u00fc")
    except ValueError:
        print(traceback.format_exc())
    print(Recursive().depth(0), Recursive.static(5), Recursive.of_class())
    values = generator()
    print(next(values), values.send("x"))
    values.close()
    values = generator()
    print(next(values), values.throw(KeyError("k")))
    try:
        next(values)
    except StopIteration as stop:
        print("returned", stop.value)
    del values
    generator()
    asyncio.run(tasks())


SHARED = tprof.range("shared")


def enter_ranges(number):
    for _ in range(100):
        with SHARED:
            with SHARED:
                pass
    with tprof.range("with bytes", **({"number": number} if number else {})):
        kept.append(bytearray(1_000_000))


kept = []


def threads():
    all_threads = [threading.Thread(target=enter_ranges, args=(number,)) for number in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()


def forks():
    with tprof.range("around a fork"):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            tprof.mark("in the child")
            with tprof.range("of the child"):
                pass
            os._exit(7)
        print(os.waitpid(child, 0)[1])


def subinterpreter():
    source = "import sys; sys.path[:] = %r; import tprof; tprof.mark('sub'); tprof.range('sub')(len)" % sys.path
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    try:
        number = interpreters.create("legacy")
    except TypeError:
        number = interpreters.create(isolated=False) if sys.version_info >= (3, 9) else interpreters.create()
    print(interpreters.run_string(number, source))
    interpreters.destroy(number)


class AtTheEnd:
    """An object that uses `tprof` when the interpreter collects it at its end."""

    mark, span = tprof.mark, tprof.range("at the end")

    def __del__(self):
        with self.span:
            self.mark("collected")


def at_exit():
    with tprof.range("at exit"):
        tprof.mark("exit")
        print("exits")


arguments()
forks()  # This comes before `threads()`, because Python may warn about a fork of a process with threads.
functions()
threads()
subinterpreter()
tprof.start()
tprof.stop()
tprof.mark("not recorded")
print(tprof.is_recording())
tprof.start()
if "again" not in sys.argv:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-B", __file__, "again"])
last = AtTheEnd()
atexit.register(at_exit)
# C code of the interpreter calls this `__enter__`, so no Python frame is on the stack.
atexit.register(tprof.range("called by no frame").__enter__)
