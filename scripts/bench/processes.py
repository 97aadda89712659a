"""Measures what recording adds to a process that lasts a millisecond. Builds and shell scripts start hundreds of these.
It is measured for several ways to start one, and in a build that keeps all processors busy.

If the job leaves a processor idle, the collector works there, and wall time doesn't show that. A build has no idle
processor, so its wall time includes everything.
"""

import shutil

import table

# A compiler driver starts five programs: gcc, cc1, as, collect2, ld.
IMAGES = 5
SHELLS = ("dash", "bash")
LOOP = "i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"


def starters(bench, count):
    """Returns commands that start /bin/true `count` times, by the way in which they start it."""
    found = {"fork and exec": bench.program("children", count), "posix_spawn": bench.program("spawn", count)}
    for shell in SHELLS:
        if shutil.which(shell):
            found[shell] = [shell, "-c", LOOP.format(count=count)]
        else:
            bench.notes.append(f"{shell} is not installed: its rows are missing")
    return found


def sources(folder, count):
    """Writes `count` small C programs, and a makefile for all of them."""
    folder.mkdir()
    for number in range(count):
        body = "".join(
            f'int f{number}_{at}(int x) {{ char text[64]; snprintf(text, sizeof text, "%d", x + {at}); return (int)strlen(text) + x * {at}; }}\n'
            for at in range(8)
        )
        text = f"#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n{body}int main(void) {{ return f{number}_0(1) == 0; }}\n"
        (folder / f"f{number}.c").write_text(text)
    names = " ".join(f"$(OUT)/p{number}" for number in range(count))
    (folder / "Makefile").write_text(f"all: {names}\n$(OUT)/p%: f%.c\n\t@gcc -O0 $< -o $@\n")
    return folder


def rows(bench, what, found, count, target):
    def added(figure):
        return found.median(lambda plain, run: (figure(run) - figure(plain)) * 1e3 / count)

    wall, cpu = added(lambda run: run.wall), added(lambda run: run.cpu)
    disturbed = found.others() is None or found.others() > table.DISTURBED
    bench.row(what, cpu if disturbed else wall, "ms", target, basis="cpu of all" if disturbed else "wall")
    if disturbed:
        bench.row("  wall, disturbed", wall, "ms", None, basis="wall")
    else:
        bench.row("  CPU of job and collector", cpu, "ms", None, basis="cpu")
    bench.row("  of it the collector's", found.median(lambda _, run: run.collector_ns / 1e6 / count), "ms", None, basis="cpu")


def measure(bench):
    count = bench.rounds(500, 300)
    modes = {"": bench.traced(), ", exact": bench.traced("--mem", "exact")}
    for name, argv in starters(bench, count).items():
        found = bench.pairs(argv, {f"tprof{mode}": wrap for mode, wrap in modes.items()}, bench.rounds(9, 5), 40)
        for mode in modes:
            rows(bench, f"short child process, {name}{mode}", found[f"tprof{mode}"], count, None if mode else 0.5)
    if not (shutil.which("make") and shutil.which("gcc")):
        bench.notes.append("make or gcc is not installed: rows of a build are missing")
        return
    files = bench.rounds(200, 60)
    argv = ["make", "-s", "-j2", "-C", sources(bench.built / "sources", files), "OUT={folder}"]
    found = bench.pairs(argv, {f"tprof{mode}": wrap for mode, wrap in modes.items()}, bench.rounds(5, 3), 120)
    for mode in modes:
        pairs = found[f"tprof{mode}"]
        rows(bench, f"make -j2, {files} C files, a program{mode}", pairs, files * IMAGES, None)
        alone = pairs.median(lambda plain, _: plain.cpu * 1e3 / (files * IMAGES))
        bench.row("  native", alone, "ms", None, basis="cpu")
