"""The table of intercepted functions, out of `crates/wire/src/calls.rs`."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^    (Runtime|Driver|Nccl|Cublas|CublasLt) (\w+) (\d+) (.*);$", re.M)


def table():
    """Name → library, words on the stack, and what it does, as the table has it."""
    sources = sorted(ROOT.glob("crates/wire/src/calls*.rs")) + sorted(ROOT.glob("crates/wire/src/calls/*.rs"))
    found = {}
    for source in sources:
        for library, name, words, does in ENTRY.findall(source.read_text()):
            found[name] = (library, int(words), does)
    return found


def exported():
    """All names that the preloaded library has hooks of."""
    return set((ROOT / "scripts/exported-symbols.txt").read_text().split())
