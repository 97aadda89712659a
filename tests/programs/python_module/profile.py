"""Records a part as with torch.profiler, and uses the profiling flags. Its output is the same without tprof."""

import argparse
import os
import sys

import tprof


def refused(call):
    try:
        call()
    except (ValueError, TypeError, RuntimeError, SystemExit) as error:
        print("refused:", str(error))
    else:
        print("taken")


def windows(steps, inside=None, **parts):
    """Returns the callbacks that torch.profiler 2.15.0 makes."""
    ready = []
    schedule = tprof.schedule(**parts)
    with tprof.profile(schedule=schedule, on_trace_ready=lambda of: ready.append((of.step_num, of.partial))) as of:
        for _ in range(steps):
            if inside is not None:
                inside(of)
            of.step()
    return ready


def schedules():
    for parts in (
        dict(wait=1, warmup=1, active=2),
        dict(wait=1, warmup=1, active=2, repeat=1),
        dict(wait=0, warmup=0, active=1),
        dict(wait=2, warmup=1, active=1, repeat=2, skip_first=3),
        dict(wait=4, warmup=1, active=1, repeat=2, skip_first=3, skip_first_wait=1),
    ):
        schedule = tprof.schedule(**parts)
        print("".join(".wrS"[schedule(step).value] for step in range(20)), schedule)
    for steps in range(1, 10):
        print(steps, windows(steps, wait=1, warmup=1, active=2, repeat=2))
    for parts in ({}, dict(active=0), dict(active=1, wait=-1), dict(active=1.5), dict(active=1, repeat=-1)):
        refused(lambda: tprof.schedule(**parts))
    refused(lambda: tprof.profile(activities=["TPU"]))
    refused(lambda: tprof.profile(schedule=lambda step: 7))
    refused(lambda: tprof.profile().events)
    print(hasattr(tprof.profile(), "events"))

    @tprof.profile()
    def decorated(value):
        return value + 1

    print(decorated(1), decorated(2))
    with tprof.profile() as twice:
        refused(twice.start)


def flags():
    parser = tprof.add_arguments(argparse.ArgumentParser(prog="train"))
    parser.add_argument("prompt", nargs="?")
    for line in (
        "",
        "--profile --profile-record-shapes=False text",
        "--profile --no-profile-record-shapes --profile-with-stack --profile-activities cpu MEM -- text",
        "--profile-record-shapes text --profile-name n --profile-dir d --profile-active 2 --track-memory",
    ):
        print(vars(parser.parse_args(line.split())))
    sys.stderr = sys.stdout
    for line in ("--profile-activities TPU", "--profile-active 0", "--profile-wait x"):
        refused(lambda: parser.parse_args(line.split()))
    sys.stderr = sys.__stderr__


def work(n=20_000):
    with tprof.range("work"):
        return sum(value * value for value in range(n))


def main(directory):
    schedules()
    flags()
    with tprof.profile(
        schedule=tprof.schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=tprof.tensorboard_trace_handler(os.path.join(directory, "tb"), "worker"),
    ) as of:
        for step in range(10):
            with tprof.range("of step %d" % step):
                work()
            of.step()
    of.export_chrome_trace(os.path.join(directory, "plain.json"))
    tprof.stop()
    work()
    parser = tprof.add_arguments(argparse.ArgumentParser())
    line = "--profile --profile-name flagged --profile-activities CPU MEM --profile-dir"
    args = parser.parse_args([*line.split(), os.path.join(directory, "dir")])
    profiler = tprof.create_profiler_from_args(args)
    with profiler, tprof.MemoryTracker() as tracker:
        with tprof.range("flagged"):
            work()
    assert tracker.peak_resident_bytes > 1 << 20 and tracker.peak_device_bytes is None
    print(os.path.relpath(profiler.output_dir, directory), profiler.trace_path.name)

    @tprof.profile_function(output_dir=os.path.join(directory, "dir"))
    def function(depth):
        with tprof.range("call"):
            return work() if depth == 0 else function(depth - 1)

    for _ in range(2):
        function(1)
    with tprof.ProfilerContext(enabled=False) as disabled:
        disabled.step()
    print(disabled.trace_path.name.replace(disabled.profile_name, "NAME"), disabled.memory_path.exists())
    tprof.start()


main(sys.argv[1])
