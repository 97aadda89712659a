"""Measures what tprof costs beside native, a floor and a peer. See docs/overhead.md."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import big_c
import collector
import eager
import files
import gpu
import hta
import import_torch
import imports
import operators
import overhead_line
import processes
import python_stacks
import rust_spans
import scale
import table
import where
from measure import Pairs, Run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = HERE / "programs"
# Cost of recording: the table in docs/notes/overhead-bench.md.
RECORDING = ("probe", "exact", "mixed", "sampled", "threads", "cc1", "start", "memory")
# Compiler options that build the floor as a library.
FLOOR = ("-shared", "-fPIC", "-fno-builtin", "-fno-omit-frame-pointer")
PARTS = (*RECORDING, "exports", "pages", "import", "reports", "gpu", "python", "scale", "overhead-line", "abi", "collector-torch", "import-torch", "operators", "eager", "sdk", "where", "files")
# If a cache line takes longer than this between cores, transferring a record to the collector is the larger part of its
# cost.
DISTANT_NS = 50


class Bench:
    def __init__(self, args):
        self.args = args
        self.quick = args.quick
        self.built = Path(tempfile.mkdtemp(prefix="bench-programs-"))
        self.rows, self.sections, self.notes = [], [], []
        self.scale = []
        self.overhead_line, self.tables = [], []
        # A copy, so that a build in the meantime does not change the measured program.
        self.tprof = shutil.copy2(args.tprof, self.built / "tprof")
        self.heaptrack = shutil.which("heaptrack")
        if not self.heaptrack:
            self.notes.append("heaptrack is not installed (apt-get install heaptrack): its rows are missing")
        self.distances = []

    def build(self):
        cc = os.environ.get("CC", "gcc")
        common = ["-O2", "-g", "-pthread", "-fno-builtin-malloc"]

        def compile(source, name, *options):
            subprocess.run([cc, *common, *options, PROGRAMS / source, "-o", self.built / name], check=True)

        victims = ROOT / "tests/programs"
        subprocess.run([cc, *common, victims / "scheduled.c", "-o", self.built / "scheduled", "-ldl"], check=True)
        for name in ("malloc_tight", "malloc_mixed", "children", "spawn", "pingpong", "spans_tight"):
            compile(f"{name}.c", name, "-fno-omit-frame-pointer")
        compile("malloc_mixed.c", "malloc_mixed_bare", "-fomit-frame-pointer")
        compile("empty_callbacks.c", "empty_callbacks.so", "-shared", "-fPIC")
        for level in (1, 2, 3):
            compile("floor.c", f"floor{level}.so", f"-DLEVEL={level}", *FLOOR)
        # The floor with stacks needs libunwind, which is installed with heaptrack.
        try:
            compile("floor.c", "floor4.so", "-DLEVEL=4", *FLOOR, "-Wl,--no-as-needed", "-l:libunwind.so.8")
            self.unwinds = True
        except subprocess.CalledProcessError:
            self.notes.append("libunwind is not installed (apt-get install libunwind8): unw_backtrace is not measured")
            self.unwinds = False
        found = subprocess.run([cc, "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
        self.cc1 = found if os.path.isabs(found) else None
        big_c.write(self.built / "big.c")

    # A contender is a function that maps a workload's command to the contender's own command and environment.

    def traced(self, *options):
        return lambda argv: ([self.tprof, "run", "--quiet", "-o", "{folder}/run", *options, "--", *argv], {})

    def floor(self, level):
        return lambda argv: (argv, {"LD_PRELOAD": str(self.built / f"floor{level}.so")})

    def peer(self, *options):
        return lambda argv: ([self.heaptrack, *options, "-o", "{folder}/heaptrack", *argv], {})

    def program(self, name, *arguments):
        return [str(self.built / name), *map(str, arguments)]

    def pairs(self, argv, contenders, rounds, most_s):
        """Runs interleaved pairs: `rounds` of them, or as many as fit into `most_s`."""
        found = {name: Pairs() for name in contenders}
        Run(argv)
        began = time.monotonic()
        for _ in range(rounds):
            for name, wrap in contenders.items():
                command, env = wrap(argv)
                found[name].add(Run(argv), Run(command, env, watch=name.startswith("tprof")))
            if time.monotonic() - began > most_s:
                break
        return found

    def peers(self, argv):
        """Runs heaptrack with --raw and with its defaults, under a memory limit; once each if quick."""
        found = {}
        if self.heaptrack:
            for name, options in (("heaptrack --raw", ["--raw"]), ("heaptrack", [])):
                found[name] = Pairs()
                for _ in range(1 if self.quick else 3):
                    command, env = self.peer(*options)(argv)
                    found[name].add(Run(argv), Run(command, env, limit=True))
                    if found[name].died():
                        break
        return found

    def section(self, workload, found):
        """Adds a section with each contender's additional cost per event."""
        entries = []
        for name, pairs in found.items():

            def added(clock):
                return pairs.median(lambda plain, run: run.loop_ns(clock) - plain.loop_ns(clock))

            tprof = name.startswith("tprof")
            entries.append(
                {
                    "contender": name,
                    "died": pairs.died(),
                    "slice": added("slice"),
                    "wall": added("wall"),
                    "cpu": added("cpu"),
                    "plain_cpu": pairs.median(lambda plain, _: plain.loop_ns("cpu")),
                    "collector": pairs.median(lambda _, run: run.collector_ns / (run.recorded or run.events)) if tprof else None,
                    "wait": pairs.median(lambda _, run: run.wait_ns / run.events) if tprof else None,
                    "ratio": pairs.median(lambda plain, run: run.wall / plain.wall),
                    "bytes": pairs.median(lambda _, run: run.bytes_per_event),
                    "others": pairs.others(),
                    "pairs": len(pairs.all),
                }
            )
        self.sections.append({"workload": workload, "entries": entries})
        return entries

    def row(self, what, value, unit, target, **more):
        self.rows.append({"what": what, "value": value, "unit": unit, "target": target, **more})

    def judged(self, what, entry, target, threads=1, exact=True):
        """Adds a row for an additional cost. On an otherwise idle machine it is wall time. On a disturbed one the
        collector starves, so the row models the cost: CPU time, plus the wait for a collector that has a core of its
        own."""
        disturbed = entry["others"] is None or entry["others"] > table.DISTURBED
        value = entry["cpu"] if disturbed else entry["wall"]
        if disturbed and exact and value is not None:
            value += max(0, entry["collector"] - (entry["plain_cpu"] + value) / threads)
        self.row(what, value, "ns/event", target, basis="cpu, modelled" if disturbed else "wall")

    def against_floor(self, entry, floor, target):
        """Adds a row with the added CPU time of the job as a multiple of a floor's. Wall time would mislead on a
        machine of two processors, where two threads and the collector don't have one each."""
        both = entry["cpu"] is not None and floor["cpu"]
        self.row(f"  of it CPU, times that of {floor['contender']}", entry["cpu"] / floor["cpu"] if both else None, "ratio", target, basis="cpu")

    def rounds(self, full, quick):
        return quick if self.quick else full

    def torch(self, what):
        """Returns a Python with PyTorch. Without one, returns None and notes which figure is not measured."""
        python = self.args.torch_python
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
        self.notes.append(f"no PyTorch: --torch-python names a Python that has it; {what} not measured")
        return None

    # The rows.

    def probe(self, when="before"):
        """Measures how far the cores are apart. A virtual machine's cores may move during the benchmark, so this runs
        before and after it, and the smaller distance counts."""
        runs = [Run(self.program("pingpong")) for _ in range(3)]
        one_way = min((run.printed["one_way_ns"] for run in runs if run.status == 0), default=None)
        self.distances.append(one_way or 0)
        self.row(f"cache line, core to core, one way, {when}", one_way, "ns", None)

    def tight_target(self):
        return 25 if min(self.distances) > DISTANT_NS else 10

    def exact_tight(self):
        argv = self.program("malloc_tight", self.rounds(10_000_000, 4_000_000))
        found = self.pairs(
            argv,
            {"floor: forward": self.floor(1), "floor: record": self.floor(2), "tprof exact, no stacks": self.traced("--mem", "exact", "--stacks", "off")},
            self.rounds(15, 5),
            self.rounds(60, 15),
        )
        self.probe("after")
        found |= self.peers(self.program("malloc_tight", 1_000_000))
        entries = self.section("malloc_tight, 1 thread", found)
        self.judged("malloc_tight, exact, no stacks", entries[2], self.tight_target())
        self.against_floor(entries[2], entries[1], 1.6)
        self.collector("malloc_tight", found["tprof exact, no stacks"], 14)
        self.row("ring bytes per event", 16, "B", 16, basis="by design")

    def collector(self, workload, pairs, target):
        cost = pairs.median(lambda _, run: run.collector_ns / run.recorded)
        self.row(f"collector CPU, {workload}", cost, "ns/event", target, basis="cpu")

    def exact_mixed(self):
        stack = None
        for name, threads, target in (("malloc_mixed", 1, 45), ("malloc_mixed", 2, 45), ("malloc_mixed_bare", 1, 80)):
            bare = name.endswith("bare")
            label = f"malloc_mixed, {'no ' if bare else ''}frame pointers, {threads} thread{'s' * (threads > 1)}"
            argv = self.program(name, self.rounds(2_000_000, 1_000_000), threads)
            contenders = {"floor: record" if bare else "floor: record, stack": self.floor(2 if bare else 3), "tprof exact, stacks": self.traced("--mem", "exact")}
            if bare and self.unwinds:
                contenders["floor: record, unw_backtrace"] = self.floor(4)
            found = self.pairs(argv, contenders, self.rounds(12, 4), self.rounds(45, 12))
            if threads == 1 and not bare:
                found |= self.peers(self.program(name, 400_000, threads))
            floor, entry, *unwinder = self.section(label, found)[:3]
            self.judged(f"{label}, exact, stacks", entry, target, threads)
            # Without frame pointers the floor takes no stacks, so the cost is compared with rounds
            # that do.
            stack = stack or floor
            self.against_floor(entry, stack if bare else floor, 1.5 if bare else 1.8)
            if bare and self.unwinds:
                self.against_floor(entry, unwinder[0], 0.6)
            traced = found["tprof exact, stacks"]
            if threads == 1 and not bare:
                self.collector("malloc_mixed with stacks", traced, 50)
                size = traced.median(lambda _, run: run.file_bytes / run.recorded)
                self.row("trace, malloc_mixed, exact, stacks", size, "B/event", 4)
                self.memory(traced)

    def memory(self, pairs):
        """Measures the additional memory of the target: its own pages, and the rings, which are shared."""
        own = pairs.median(lambda plain, run: run.printed["peak_kib"] - run.printed["shared_kib"] - plain.printed["peak_kib"])
        rings = pairs.median(lambda _, run: run.printed["shared_kib"])
        self.row("target's extra memory without rings", own / 1024, "MiB", 4)
        self.row("rings at the end of malloc_mixed", rings / 1024, "MiB", None)

    def sampled(self):
        for threads, target in ((1, 4), (2, 5)):
            label = f"malloc_tight, {threads} thread{'s' * (threads > 1)}"
            argv = self.program("malloc_tight", self.rounds(20_000_000, 10_000_000), threads)
            found = self.pairs(
                argv,
                {"floor: forward": self.floor(1), "tprof sampled": self.traced()},
                self.rounds(15, 5),
                self.rounds(40, 8),
            )
            self.judged(f"{label}, sampled (the default)", self.section(label, found)[1], target, exact=False)

    def threads(self):
        """Measures CPU time per event: with more threads than cores, wall time has no meaning."""
        for mode, options in (("exact, no stacks", ("--mem", "exact", "--stacks", "off")), ("sampled", ())):
            for threads in (1, 2, 4):
                argv = self.program("malloc_tight", self.rounds(8_000_000, 4_000_000), threads)
                pairs = self.pairs(argv, {"tprof": self.traced(*options)}, self.rounds(7, 3), self.rounds(15, 6))["tprof"]
                cost = pairs.median(lambda plain, run: run.loop_ns("cpu") - plain.loop_ns("cpu"))
                self.row(f"{mode}, {threads} thread{'s' * (threads > 1)}", cost, "ns/event", None, basis="cpu")

    def exports(self):
        """Measures million events per CPU second, and bytes per event, of exports of a synthetic rank."""
        events = self.rounds(2_000_000, 500_000)
        # torch.profiler wrote 300,000 events to .json.gz in 5.8 s.
        targets = {"perfetto": (1.5, 20), "chrome": (0.259, None), "parquet": (None, 5), "json": (None, None), "csv": (None, None)}
        for name, (speed, size) in targets.items():
            command = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "tprof-tables", "--example", "speed", "--", name, str(events)]
            output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
            found = re.search(r"([\d.]+) million/s, ([\d.]+) bytes/event, peak (\d+) MB", output)
            self.row(f"export --to {name}: speed", float(found[1]), "M events/s", speed, basis="cpu", at_least=True)
            self.row("  size", float(found[2]), "bytes/event", size)
            self.row("  peak memory", float(found[3]), "MB", None)

    def pages(self):
        """Measures the timeline of a million events in a browser with pages.py."""
        figures = self.built / "pages.json"
        command = [sys.executable, HERE / "pages.py", "--tprof", self.tprof, "--json", figures]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            self.notes.append(f"pages were not measured: {(done.stderr.strip() or 'no reason').splitlines()[-1]}")
            return
        found = json.loads(figures.read_text())
        for row in found["rows"]:
            basis = "cpu" if "CPU" in row["what"] else "wall"
            self.row(f"timeline page: {row['what']}", row["value"], row["unit"], row["target"], basis=basis, at_least=row["side"] == "least")

    def compiler(self):
        if not self.cc1:
            self.notes.append("no cc1 here: its row is missing")
            return
        argv = [self.cc1, "-quiet", "-O2", "-w", str(self.built / "big.c"), "-o", "/dev/null"]
        contenders = {"tprof": self.traced("--mem", "exact")}
        found = self.pairs(argv, contenders | {"floor": self.floor(2)}, self.rounds(7, 3), self.rounds(50, 25))
        if self.heaptrack and not self.quick:
            command, env = self.peer()(argv)
            found["heaptrack"] = Pairs()
            found["heaptrack"].add(Run(argv), Run(command, env, limit=True))
        traced = found["tprof"]
        wall = traced.median(lambda plain, run: run.wall / plain.wall)
        cpu = traced.median(lambda plain, run: (run.cpu - run.collector_ns / 1e9) / plain.cpu)
        disturbed = traced.others() > table.DISTURBED
        self.row("cc1 -O2, 50,000 lines, exact, stacks: wall", wall, "ratio", 1.12, basis="wall, disturbed" if disturbed else "wall")
        self.row("  its own CPU, without the collector", cpu, "ratio", None, basis="cpu")
        self.row("  CPU with the collector", traced.median(lambda plain, run: run.cpu / plain.cpu), "ratio", 1.25, basis="cpu")
        self.row("  events", traced.median(lambda _, run: run.recorded / 1e6), "million", None)
        self.row("  floor: record, no stack", found["floor"].median(lambda plain, run: run.cpu / plain.cpu), "ratio", None, basis="cpu")
        if "heaptrack" in found:
            slower = found["heaptrack"].median(lambda plain, run: run.wall / plain.wall)
            self.row("  heaptrack", found["heaptrack"].died() or slower, "ratio", None, basis="wall")

    def start(self):
        found = self.pairs(["/bin/true"], {"tprof": self.traced()}, self.rounds(40, 15), 20)["tprof"]
        self.row("tprof run -- true", found.median(lambda plain, run: (run.wall - plain.wall) * 1e3), "ms", 25, basis="wall")
        self.row("  least", found.least(lambda run: run.wall * 1e3), "ms", None, basis="wall")
        self.row("  CPU", found.median(lambda plain, run: (run.cpu - plain.cpu) * 1e3), "ms", None, basis="cpu")
        processes.measure(self)

    def long_run(self):
        """Shows whether the collector grows with the run, which lasts for as many events and seconds as allowed."""
        command, env = self.traced("--mem", "exact")(self.program("malloc_mixed", self.rounds(120_000_000, 8_000_000)))
        run = Run(command, env, watch=True, timeout=180)
        if run.status != 0 or not run.peaks:
            self.row("collector's memory, long run", None, "MiB", 64, why=f"status {run.status}")
            return
        half = run.peaks[len(run.peaks) // 2]
        self.row("collector's memory, whole long run", run.peaks[-1] / 1024, "MiB", 64)
        self.row("  after half of it", half / 1024, "MiB", None)
        self.row("  events", run.recorded / 1e6, "million", None)
        self.row("  time", run.wall, "s", None)

    def imports(self):
        imports.measure(self, ROOT, self.built)

    def reports(self):
        hta.measure(self, ROOT, self.built)

    def gpus(self):
        gpu.measure(self, self.built)

    def pythons(self):
        python_stacks.measure(self, self.built)

    def growth(self):
        scale.measure(self, ROOT, self.built)

    def abi(self):
        argv = self.program("spans_tight", self.rounds(4_000_000, 2_000_000))
        found = self.pairs(argv, {"tprof": self.traced("--mem", "off")}, self.rounds(15, 5), self.rounds(40, 12))
        self.judged("a span by tprof_abi: push and pop", self.section("spans_tight", found)[0], 30, exact=False)

    def line(self):
        overhead_line.measure(self)

    def import_torch(self):
        import_torch.measure(self)

    def collector_torch(self):
        collector.measure(self)

    def operators(self):
        operators.measure(self)

    def eager(self):
        eager.measure(self)

    def where(self):
        where.measure(self)

    def files(self):
        files.measure(self, self.built)

    def rust_spans(self):
        rust_spans.measure(self, ROOT)

    def measure(self):
        parts = (self.probe, self.exact_tight, self.exact_mixed, self.sampled, self.threads, self.compiler, self.start, self.long_run, self.exports, self.pages, self.imports, self.reports, self.gpus, self.pythons, self.growth, self.line, self.abi, self.collector_torch, self.import_torch, self.operators, self.eager, self.rust_spans, self.where, self.files)
        for name, part in zip(PARTS, parts, strict=True):
            if name in (self.args.only or RECORDING):
                print(f"bench: {name}", file=sys.stderr)
                part()


def main():
    parse = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    parse.add_argument("--quick", action="store_true", help="about three minutes, rougher")
    parse.add_argument("--json", metavar="FILE", help="also write every figure there")
    parse.add_argument("--plot", metavar="FILE", help="draw the growth of costs there, as SVG")
    parse.add_argument("--only", choices=PARTS, action="append", help=f"one part; may be given again for more; without it {', '.join(RECORDING)}")
    parse.add_argument("--tprof", metavar="PATH", default=ROOT / "target/release/tprof", help="the binary to measure")
    parse.add_argument("--torch-python", metavar="PATH", default=os.environ.get("TORCH_PYTHON"), help="a Python with PyTorch, for overhead-line, collector-torch, import-torch, operators and eager (or TORCH_PYTHON)")
    parse.add_argument("--against", metavar="PATH", help="another tprof, which collector-torch and import-torch run beside")
    parse.add_argument("--write-docs", action="store_true", help="put the table into docs/notes/overhead-bench.md")
    args = parse.parse_args()
    about = table.machine(ROOT, args)
    bench = Bench(args)
    try:
        bench.build()
        bench.measure()
    finally:
        shutil.rmtree(bench.built)
    result = {"version": 1, "machine": about, "notes": bench.notes, "rows": bench.rows, "sections": bench.sections, "scale": bench.scale, "overhead_line": bench.overhead_line, "tables": bench.tables}
    shown = table.text(result)
    print(shown)
    if args.json:
        table.write_json(args.json, result)
    if args.write_docs:
        table.write_docs(ROOT / "docs/notes/overhead-bench.md", shown)


if __name__ == "__main__":
    main()
