"""Checks the dependencies between crates, and the dependencies of injected code.

Arrows point one way, and only these are allowed (here `<-` means "is used by"):

    wire <- cfi <- {inject, unwind}
    wire <- inject <- {preload-shim, cupti-agent}
    cupti-sys <- {inject, cupti-agent}
    os <- symbols <- unwind <- sampler <- collect <- profiler-cli
    trace <- sampler
    wire <- trace <- {collect, facts} <- profiler-cli
    facts <- {import, export, live, ui} <- profiler-cli
    facts <- rank <- document <- metrics <- findings <- analyze <- diff <- schema <- profiler-cli
    {analyze, export} <- tables <- profiler-cli
    {live, export} <- serve <- profiler-cli
    {facts, analyze, tables, ui} <- sql

More dependencies follow from these. The collector reads rings, unwind rows and frames that `wire` defines, and the
launcher sets the environment that `wire` names. Each crate of the line from `os` to `collect` may use all before it,
and the launcher may use all of that line. Analysis and export never use rings, and never each other: `facts` has what
both must say alike about a run. Each crate of the line from `rank` to `schema`, which analyse, may use those before it.
Tables list rows with figures that reports derive from them, so they use both. Injected code never uses trace files.
Tests of any crate may use `fixture`, which writes small traces.

Inside each crate files have an order, too: `scripts/arrows/rooms.py` checks it.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent / "arrows"))
from rooms import wrong as wrong_inside  # noqa: E402

ALLOWED = {
    # Crates that Rust programs depend on.
    "tprof": {"tprof-macros"},
    "tprof-macros": set(),
    "tprof-wire": set(),
    "tprof-cupti-sys": set(),
    "tprof-cfi": {"tprof-wire"},
    "tprof-inject": {"tprof-wire", "tprof-cfi", "tprof-cupti-sys"},
    "tprof-preload": {"tprof-wire", "tprof-inject"},
    "tprof-cupti": {"tprof-wire", "tprof-inject", "tprof-cupti-sys"},
    "tprof-trace": {"tprof-wire"},
    "tprof-os": set(),
    "tprof-symbols": {"tprof-wire", "tprof-os"},
    "tprof-unwind": {"tprof-wire", "tprof-cfi", "tprof-os", "tprof-symbols"},
    "tprof-sampler": {"tprof-wire", "tprof-os", "tprof-symbols", "tprof-unwind", "tprof-trace"},
    "tprof-collect": {
        "tprof-wire", "tprof-os", "tprof-symbols", "tprof-unwind", "tprof-sampler", "tprof-trace",
    },
    "tprof-facts": {"tprof-trace"},
    "tprof-import": {"tprof-trace", "tprof-facts"},
    "tprof-fixture": {"tprof-trace"},
    "tprof-rank": {"tprof-trace", "tprof-facts"},
    "tprof-document": {"tprof-trace", "tprof-facts", "tprof-rank"},
    "tprof-metrics": {"tprof-trace", "tprof-facts", "tprof-rank", "tprof-document"},
    "tprof-findings": {"tprof-trace", "tprof-facts", "tprof-rank", "tprof-document", "tprof-metrics"},
    "tprof-analyze": {
        "tprof-trace", "tprof-facts", "tprof-rank", "tprof-document", "tprof-metrics", "tprof-findings",
    },
    "tprof-diff": {
        "tprof-trace", "tprof-facts", "tprof-rank", "tprof-document", "tprof-metrics", "tprof-analyze",
    },
    "tprof-schema": {"tprof-rank", "tprof-document", "tprof-analyze", "tprof-diff"},
    "tprof-export": {"tprof-trace", "tprof-facts"},
    "tprof-tables": {
        "tprof-trace", "tprof-facts", "tprof-rank", "tprof-document", "tprof-analyze", "tprof-export",
    },
    "tprof-ui": {"tprof-trace", "tprof-facts"},
    "tprof-live": {"tprof-trace", "tprof-facts"},
    "tprof-serve": {"tprof-trace", "tprof-live", "tprof-export"},
    # A separate workspace and program.
    "tprof-sql": {
        "tprof-trace", "tprof-facts", "tprof-document", "tprof-analyze", "tprof-export", "tprof-tables",
        "tprof-ui",
    },
    "tprof-cli": {
        "tprof-wire", "tprof-os", "tprof-symbols", "tprof-unwind", "tprof-sampler", "tprof-trace",
        "tprof-facts", "tprof-collect", "tprof-import", "tprof-rank", "tprof-document", "tprof-metrics",
        "tprof-findings", "tprof-analyze", "tprof-diff", "tprof-schema", "tprof-export", "tprof-tables",
        "tprof-ui", "tprof-live", "tprof-serve",
    },
}
# What tests of any crate may use.
FOR_TESTS = {"tprof-fixture"}
ANYTHING = {"tprof-tests", "tprof-fake-cuda"}
# Code that runs inside the job. It depends only on libc's declarations.
INJECTED = {"tprof-wire", "tprof-cfi", "tprof-cupti-sys", "tprof-inject", "tprof-preload", "tprof-cupti"}
INJECTED_MAY = {"libc"}


def metadata(*arguments):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def wrong_dependencies(package, workspace):
    name = package["name"]
    for dependency in package["dependencies"]:
        other, kind = dependency["name"], dependency["kind"] or "normal"
        if other in workspace:
            # Tests of a separate workspace make their input with other crates.
            if name == "tprof-sql" and kind == "dev":
                continue
            if other in FOR_TESTS and kind == "dev":
                continue
            if name not in ANYTHING and other not in ALLOWED.get(name, set()):
                yield f"{name} -> {other}: against the arrows ({kind})"
        elif name in INJECTED and kind == "normal" and other not in INJECTED_MAY:
            yield f"{name} -> {other}: injected code may depend on libc alone"


def roots(package):
    """Returns the root files of the shipped crates of a package."""
    kinds = {"lib", "rlib", "bin", "cdylib", "staticlib"}
    for target in package["targets"]:
        if kinds & set(target["kind"]):
            yield target["src_path"]


def main():
    root = metadata("--no-deps")["packages"]
    injected = {}
    for folder in ("preload-shim", "cupti-agent"):
        for package in metadata("--manifest-path", f"{folder}/Cargo.toml")["packages"]:
            injected[package["name"]] = package
    apart = metadata("--no-deps", "--manifest-path", "sql/Cargo.toml")["packages"]
    packages = {package["name"]: package for package in [*root, *apart, *injected.values()]}
    known = {name for name in packages if name == "tprof" or name.startswith("tprof-")}
    wrong = [
        f"{name}: no arrows are defined for it (scripts/check-arrows.py)"
        for name in sorted(known - set(ALLOWED) - ANYTHING)
    ]
    for name in sorted(known):
        wrong += wrong_dependencies(packages[name], known)
    for name in sorted(known - ANYTHING):
        wrong += [f"{name}: {text}" for root in roots(packages[name]) for text in wrong_inside(root)]
    # Indirect dependencies count, too.
    linked = set(injected)
    for other in sorted(linked - INJECTED - INJECTED_MAY):
        wrong.append(f"an injected library links {other}")
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{len(known)} crates; the injected libraries link {', '.join(sorted(linked))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
