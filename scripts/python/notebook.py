"""`%%tprof` in a real kernel: needs nbclient, nbformat and ipykernel. Usage: notebook.py TPROF"""

import os
import re
import sys

import nbclient
import nbformat

import tprof

CELLS = [
    "%load_ext tprof",
    "%%tprof\ndef busy():\n    return sum(value * value for value in range(8_000_000))\nkept = busy()\nkept",
    "kept",
    "%%tprof\nraise ValueError('of the cell')",
]


def main():
    os.environ["PATH"] = os.path.dirname(os.path.abspath(sys.argv[1])) + os.pathsep + os.environ["PATH"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(book, timeout=120, allow_errors=True).execute()
    _, measured, after, fails = book.cells
    pages = [out["data"]["text/html"] for out in measured.outputs if "text/html" in out.get("data", {})]
    assert len(pages) == 1 and "<iframe" in pages[0], len(pages)
    run = re.search(r"tprof report cpu ([^<]+)<", pages[0])[1]
    functions = [row["function"] for row in tprof.load(run).table("cpu")]
    assert any("busy" in function for function in functions), functions
    values = [out["data"]["text/plain"] for out in measured.outputs if out["output_type"] == "execute_result"]
    value = str(sum(value * value for value in range(8_000_000)))
    assert values == [value], values
    assert [out["data"]["text/plain"] for out in after.outputs] == [value], after.outputs
    errors = [(out.ename, out.evalue) for out in fails.outputs if out["output_type"] == "error"]
    assert errors == [("ValueError", "of the cell")], fails.outputs
    print("notebook: the cell's flame page has %d bytes" % len(pages[0]))


main()
