"""``tprof.run``: how long a function takes, as a distribution; ``tprof.compare`` of two."""

from __future__ import annotations

import math
import time

from ._range import range as span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence, Tuple

_RESAMPLES = 2000
"""Of the bootstrap: the interval's ends then vary by about 1 % of its width."""


class Distribution:
    """Times of the calls of one function, in the order of the calls.

    ``wall_ns`` are nanoseconds from call to return, ``cpu_ns`` the CPU time of all threads of the process
    meanwhile, which the system gives in steps of up to 1 ms on some kernels. ``result`` is what the
    last call returned.
    """

    def __init__(
        self, name: str, wall_ns: Sequence[int], cpu_ns: Sequence[int], result: Any = None
    ) -> None:
        self.name = name
        self.wall_ns = tuple(wall_ns)
        self.cpu_ns = tuple(cpu_ns)
        self.result = result
        self._sorted = sorted(wall_ns)

    def __len__(self) -> int:
        return len(self.wall_ns)

    @property
    def median_ns(self) -> float:
        return self.quantile_ns(0.5)

    @property
    def mean_ns(self) -> float:
        return math.fsum(self.wall_ns) / len(self.wall_ns)

    @property
    def min_ns(self) -> int:
        return self._sorted[0]

    @property
    def max_ns(self) -> int:
        return self._sorted[-1]

    @property
    def stdev_ns(self) -> Optional[float]:
        """Of the sample (n - 1); None of a single time."""
        if len(self.wall_ns) < 2:
            return None
        mean = self.mean_ns
        squares = math.fsum((value - mean) ** 2 for value in self.wall_ns)
        return math.sqrt(squares / (len(self.wall_ns) - 1))

    def quantile_ns(self, fraction: float) -> float:
        """The time that this fraction (0 to 1) of the calls took at most, between two calls by
        proportion. Raises ValueError outside of 0 to 1."""
        return _quantile(self._sorted, fraction)

    def interval_ns(self, confidence: float = 0.95) -> Optional[Tuple[float, float]]:
        """An interval around the median, by the bootstrap's percentiles; None of fewer than 5 times,
        which hold too little for one."""
        if len(self.wall_ns) < _LEAST:
            return None
        medians = _medians(self.wall_ns, 0)
        return _ends(medians, confidence)

    def __repr__(self) -> str:
        interval = self.interval_ns()
        within = "" if interval is None else " (%s to %s at 95 %%)" % tuple(map(_time, interval))
        return "%s: median %s%s, %s to %s, %d calls" % (
            self.name,
            _time(self.median_ns),
            within,
            _time(self.min_ns),
            _time(self.max_ns),
            len(self.wall_ns),
        )


class Comparison:
    """Two distributions: ``speedup`` is the median of ``a`` over that of ``b``, above 1 where ``b`` is
    faster."""

    def __init__(self, a: Distribution, b: Distribution, confidence: float = 0.95) -> None:
        self.a, self.b, self.confidence = a, b, confidence
        self.speedup = a.median_ns / b.median_ns if b.median_ns else math.inf
        self.difference_ns = b.median_ns - a.median_ns
        """Median of ``b`` less that of ``a``."""
        self.interval: Optional[Tuple[float, float]] = None
        """Of the speedup, at that confidence; None where one of the two has fewer than 5 times."""
        if min(len(a), len(b)) >= _LEAST:
            pairs = zip(_medians(a.wall_ns, 1), _medians(b.wall_ns, 2))
            ratios = sorted(one / other if other else math.inf for one, other in pairs)
            self.interval = _ends(ratios, confidence)

    @property
    def is_significant(self) -> Optional[bool]:
        """Whether the interval leaves out 1; None without one."""
        return None if self.interval is None else not self.interval[0] <= 1 <= self.interval[1]

    def __repr__(self) -> str:
        if self.interval is None:
            verdict = "too few calls for an interval"
        else:
            verdict = "%.3f to %.3f at %g %%" % (*self.interval, self.confidence * 100)
            if not self.is_significant:
                verdict += ": no difference shown"
        return "%s against %s: %.3f times as fast (%s)" % (self.b.name, self.a.name, self.speedup, verdict)


_LEAST = 5


def run(
    target: Callable[..., Any],
    *args: Any,
    warmup: int = 5,
    iterations: int = 20,
    name: Optional[str] = None,
    sync: Optional[Callable[[], Any]] = None,
) -> Distribution:
    """Calls ``target(*args)`` ``warmup`` times unmeasured, then ``iterations`` times; the times of those.

    A call that only starts work on a device returns before that is done: ``sync``, such as
    ``torch.cuda.synchronize``, is called after each and is part of its time. Under tprof each measured
    call is a span of that name, by default the function's. Exceptions of the target pass through. Raises ValueError if ``warmup`` is below 0 or
    ``iterations`` below 1.
    """
    if warmup < 0 or iterations < 1:
        raise ValueError(
            "warmup is 0 or more and iterations 1 or more, not %r and %r" % (warmup, iterations)
        )
    name = name or str(getattr(target, "__name__", type(target).__name__))
    wall: List[int] = []
    cpu: List[int] = []
    result = None
    measured = span(name)
    for _ in [None] * warmup:
        target(*args)
        if sync is not None:
            sync()
    for _ in [None] * iterations:
        with measured:
            cpu_ns, start_ns = time.process_time_ns(), time.perf_counter_ns()
            result = target(*args)
            if sync is not None:
                sync()
            wall.append(time.perf_counter_ns() - start_ns)
            cpu.append(time.process_time_ns() - cpu_ns)
    return Distribution(name, wall, cpu, result)


def compare(a: Distribution, b: Distribution, confidence: float = 0.95) -> Comparison:
    """How much faster ``b`` is than ``a``, with an interval by the bootstrap of the medians. (Two runs of
    tprof: ``tprof.load(a).diff(b)``.) Raises TypeError for anything else."""
    for one in (a, b):
        if not isinstance(one, Distribution):
            raise TypeError("compare takes what tprof.run returns, not %r" % (one,))
    return Comparison(a, b, confidence)


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    if not 0 <= fraction <= 1:
        raise ValueError("a fraction is 0 to 1, not %r" % (fraction,))
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _medians(values: Sequence[int], seed: int) -> List[float]:
    """Medians of samples drawn from these with replacement; the same each time."""
    import random

    draw = random.Random(seed)
    size = len(values)
    return [_quantile(sorted(draw.choices(values, k=size)), 0.5) for _ in [None] * _RESAMPLES]


def _ends(resampled: Sequence[float], confidence: float) -> Tuple[float, float]:
    ordered = sorted(resampled)
    outside = (1 - confidence) / 2
    return _quantile(ordered, outside), _quantile(ordered, 1 - outside)


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return "%.3g %s" % (ns / size, unit)
    return "%.3g ns" % ns
