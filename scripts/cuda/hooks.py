"""Reads the table of interposed functions in `crates/wire/src/calls.rs`."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^    (Runtime|Driver|Nccl|Cublas|CublasLt) (\w+) (\d+) (.*);$", re.M)


def table():
    """Returns the table as {name: (library, words on the stack, what the function does)}."""
    sources = sorted(ROOT.glob("crates/wire/src/calls*.rs")) + sorted(ROOT.glob("crates/wire/src/calls/*.rs"))
    found = {}
    for source in sources:
        for library, name, words, does in ENTRY.findall(source.read_text()):
            found[name] = (library, int(words), does)
    return found


def exported():
    """Returns all names that the preloaded library interposes."""
    return set((ROOT / "scripts/exported-symbols.txt").read_text().split())
