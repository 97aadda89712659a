"""Measures spans of Rust programs made with the crate tprof, beside those of other crates, both while nothing records
and while recording. All run in the same loop, whose own time is subtracted.
"""

import os
import subprocess

# Contender, description, and largest ns per pair.
OFF = (("tprof", "the crate tprof, without tprof", 2), ("puffin", "puffin, off", None), ("tracing", "tracing, without subscriber", None), ("nvtx", "nvtx 1.3, without a tool", None))
ON = (("tprof", "the crate tprof", 30), ("tprof-args", "with two arguments", 80), ("tprof-name", "with a name made at run time", None), ("tprof-gauge", "a gauge", None), ("nvtx", "nvtx 1.3, under tprof", None))
OTHERS = (("tracy", "tracy-client, nobody connected", None), ("puffin-on", "puffin, on", None), ("tracing-on", "tracing, registry without layers", None))


def measure(bench, root):
    folder = root / "scripts/bench/sdk"
    target = bench.built / "sdk"
    built = subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", target], cwd=folder, env={**os.environ, "CARGO_INCREMENTAL": "0"}, capture_output=True, text=True)
    if built.returncode != 0:
        bench.notes.append("sdk: the crates that it is compared with could not be built: " + built.stderr.strip().splitlines()[-1])
        return
    program, pairs = str(target / "release/sdk-bench"), bench.rounds(4_000_000, 1_000_000)

    def contender(name, recorded):
        argv = [program, name, str(pairs)]
        return bench.traced("--mem", "off")(argv) if recorded else (argv, {})

    def added(name, recorded):
        # Rounds under tprof have keys that begin with `tprof`.
        key = ("tprof: " if recorded else "native: ") + name
        found = bench.pairs([program, "empty", str(pairs)], {key: lambda _: contender(name, recorded)}, bench.rounds(11, 5), bench.rounds(20, 8))
        return bench.section("Rust: " + key, found)[0]

    for group, recorded, what in ((OFF, False, "not recorded"), (ON, True, "recorded"), (OTHERS, False, "recording")):
        for name, described, target_ns in group:
            entry = added(name, recorded)
            # A collector that runs at the same time disturbs wall time, so then the job's CPU time counts; otherwise
            # its quieter slices.
            clock = "cpu" if recorded else "slice"
            bench.row(f"a Rust span, {what}: {described}", entry[clock], "ns/event", target_ns, basis=clock)
