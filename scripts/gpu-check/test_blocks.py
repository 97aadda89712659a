"""Compares a run with what its allocator listed, as checks/blocks.py does it on a GPU: `test_blocks.py TPROF RUN LISTED`.

LISTED is what programs/blocks.py writes, here by a stand-in for PyTorch's allocator. Exits with 1 if they differ.
"""

import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks.blocks
import judge
import tables
from evidence import Findings, Folder


def main():
    tprof, run, listed = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(run, f"{work}/run")
        shutil.copy(listed, f"{work}/blocks.json")
        tables.export(tprof, f"{work}/run", work)
        findings = Findings()
        checks.blocks.judge("blocks", Folder(work), findings)
    return judge.report(findings)


if __name__ == "__main__":
    sys.exit(main())
