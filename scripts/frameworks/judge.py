"""Checks the reports on a program of examples/rust-frameworks: judge.py TPROF EXAMPLES FRAMEWORK WITHOUT WITH.

WITHOUT is a run of the unchanged program, WITH one of the program with three lines of the crate. Prints the figures of
both runs as a row of the table in docs/rust.md, and fails if the reports lack something that the program does.
"""

import json
import re
import subprocess
import sys

STEPS, BATCH, WIDTH = 40, 256, 512
# By framework: names of its code in functions or modules, its crate, and its span.
FRAMEWORKS = {
    "candle": (r"candle_core::|candle_nn::|gemm", "candle-core", "forward"),
    "burn": (r"burn|gemm", "burn", "forward"),
    "tch": (r"libtorch_cpu\.so|at::|torch::", "tch", "forward"),
    "ort": (r"libonnxruntime\.so|ort::", "ort", "infer"),
}


def report(tprof, kind, run):
    command = [tprof, "report", kind, "--json", "--top", "1000000", run]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def version(examples, framework, crate):
    lock = open(f"{examples}/{framework}/Cargo.lock", encoding="utf-8").read()
    return re.search(rf'name = "{crate}"\nversion = "([^"]+)"', lock).group(1)


def allocations(document, of):
    """Returns blocks and bytes at the sites that have a frame for which `of` is true."""
    sites = [site for rank in document["ranks"] for site in rank["host_memory"]["sites"]]
    sites = [site for site in sites if any(of(frame) for frame in site["stack"])]
    return sum(site["allocations"] for site in sites), sum(site["bytes"] for site in sites)


def main(tprof, examples, framework, without, with_lines):
    code, crate, span = FRAMEWORKS[framework]
    failures = []

    def need(is_so, what):
        if not is_so:
            failures.append(what)

    def spans(run):
        return {row["name"]: row for row in report(tprof, "spans", run)["tables"]["spans"]}

    def steps(run):
        return [row["step"] for row in report(tprof, "steps", run)["tables"]["steps"]]

    functions = report(tprof, "cpu", without)["tables"]["functions"]
    own = [row for row in functions if re.search(code, f"{row['function']} {row['module']}")]
    need(own, "no CPU sample of the framework")
    memory = report(tprof, "memory", without)
    planted = allocations(memory, lambda frame: f"{framework}_example::load" in frame)
    need(planted == (STEPS, STEPS * BATCH * WIDTH * 4), f"blocks of load: {planted}")
    count, size = allocations(memory, lambda frame: re.search(code, frame))
    need(count > STEPS, f"blocks of the framework: {count}")
    need(not spans(without) and not steps(without), "spans or steps without an edit")
    losses = memory["completeness"]["losses"]
    # libtorch has more distinct stacks than tprof keeps.
    need(all(row["what"] == "stacks" for row in losses), f"losses: {losses}")
    lost = "; ".join(f"lost: {row['count']} {row['what']}" for row in losses)

    found = spans(with_lines)
    need(list(found) == [span], f"spans: {list(found)}")
    row = found.get(span, {})
    need(row.get("runs") == STEPS, f"runs of {span}: {row.get('runs')}")
    need(row.get("allocations"), f"allocations within {span}: {row.get('allocations')}")
    need(steps(with_lines) == list(range(STEPS - 1)), f"steps: {steps(with_lines)}")
    counters = report(tprof, "counters", with_lines)["tables"]["counters"]
    gauges = [row for row in counters if row["counter"] in ("loss", "first")]
    need([row["samples"] for row in gauges] == [STEPS], f"gauges: {gauges}")

    busiest = own[0]["function"] if own else ""
    share = sum(row["self_share"] for row in own)
    samples = sum(row["samples"] for row in functions)
    cells = [
        f"{crate} {version(examples, framework, crate)}",
        f"{share:.0%} of {samples} samples, most in `{busiest}`",
        f"{count:,} blocks, {size / 2**20:.0f} MiB; {planted[0]} of `load`, {planted[1] / 2**20:.0f} MiB",
        f"{lost or 'none lost'}",
        f"{STEPS - 1} steps, {row.get('runs')} spans `{span}` with {row.get('allocations') or 0:,} blocks, "
        f"{(row.get('allocated_bytes') or 0) / 2**20:.1f} MiB, {gauges and gauges[0]['samples']} values",
    ]
    print(f"| {' | '.join(cells)} |")
    for failure in failures:
        print(f"error: {framework}: {failure}", file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
