"""``tprof.schedule``: chooses the steps to record, as ``torch.profiler.schedule`` does."""

from __future__ import annotations

from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional


class ProfilerAction(Enum):
    """The action in a step, with torch.profiler's names and numbers."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3

    @property
    def records(self) -> bool:
        """Whether the step is recorded."""
        return self in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def action_of(value: Any) -> ProfilerAction:
    """Returns the action that a schedule of any kind returned; torch's actions are found by name. Raises ValueError
    for anything else."""
    name = getattr(value, "name", None)
    if isinstance(name, str) and name in ProfilerAction.__members__:
        return ProfilerAction[name]
    raise ValueError(
        "a schedule returned %r; it must return a ProfilerAction: %s"
        % (value, ", ".join(ProfilerAction.__members__))
    )


class schedule:  # noqa: N801 - as torch.profiler.schedule
    """A schedule in cycles. A cycle has ``wait`` and ``warmup`` steps that are not recorded, and then ``active``
    steps that are. There are ``repeat`` cycles, or cycles without end if that is 0, and they begin after
    ``skip_first`` steps. If ``skip_first_wait`` is set, the first cycle has no wait. All are numbers of steps, 0 or
    more, and ``active`` is at least 1.

    Call the schedule with a step's number, from 0, to get its ProfilerAction. Raises ValueError if ``active`` is
    missing or a number is out of range.
    """

    def __init__(
        self,
        *,
        wait: int = 0,
        warmup: int = 0,
        active: Optional[int] = None,
        repeat: int = 0,
        skip_first: int = 0,
        skip_first_wait: int = 0,
    ) -> None:
        if active is None:
            raise ValueError("a schedule needs active: how many steps of a cycle are recorded")
        parts = {
            "wait": wait,
            "warmup": warmup,
            "active": active,
            "repeat": repeat,
            "skip_first": skip_first,
        }
        for name, value in parts.items():
            least = 1 if name == "active" else 0
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    "a schedule's %s is a number of steps, %d or more, not %r" % (name, least, value)
                )
        self.wait, self.warmup, self.active = wait, warmup, active
        self.repeat, self.skip_first = repeat, skip_first
        self.skip_first_wait = bool(skip_first_wait)

    def __call__(self, step: int) -> ProfilerAction:
        if step < self.skip_first:
            return ProfilerAction.NONE
        step -= self.skip_first
        if self.skip_first_wait:
            step += self.wait
        cycle = self.wait + self.warmup + self.active
        if self.repeat > 0 and step // cycle >= self.repeat:
            return ProfilerAction.NONE
        step %= cycle
        if step < self.wait:
            return ProfilerAction.NONE
        if step < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if step < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    @property
    def first(self) -> int:
        """Number of the first step that is recorded."""
        return self.skip_first + self.warmup + (0 if self.skip_first_wait else self.wait)

    def __str__(self) -> str:
        return "records steps %d to %d; needs at least %d" % (
            self.first,
            self.first + self.active - 1,
            self.first + self.active,
        )
