"""Compares the parameters of PM sampling and the profiler host interface with CUPTI's headers.

`pm_sampling.py INCLUDE…` prints the offset of each field in `crates/cupti-sys/tests/pm_sampling.txt` as these headers have it,
and the size that CUPTI's macro gives for each structure. It fails if a field has another offset, or if a size differs from the
table's. `cuptiProfilerHostInitialize` is an exception: newer headers append a field, and every version takes the older size.
A header without PM sampling is skipped.
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "crates/cupti-sys/tests/pm_sampling.txt"
NAMES = ["cupti_target.h", "cupti_profiler_target.h", "cupti_profiler_host.h", "cupti_pmsampling.h"]
# Structures to which newer headers append fields.
GROWN = {"CUpti_Profiler_Host_Initialize_Params"}


def table():
    """Returns [(structure, field, number)]; the field `-` stands for the size."""
    lines = [line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [(structure, field, int(number)) for structure, field, number in lines]


def measure(include, more, wanted):
    """Returns the numbers of (structure, field) in the headers of a folder."""
    lines = []
    for structure, field in wanted:
        number = f"{structure}_STRUCT_SIZE" if field == "-" else f"offsetof({structure}, {field})"
        lines.append(f'printf("{structure} {field} %zu\\n", (size_t){number});')
    # Some versions of a header include C++'s <string> in C.
    program = "#include <cuda.h>\n#include <cupti_result.h>\n#include <stddef.h>\n#include <stdio.h>\n"
    program += "".join(f"#include <{name}>\n" for name in NAMES)
    program += "int main() {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "p.cpp"), pathlib.Path(folder, "p")
        source.write_text(program)
        folders = [f"-I{folder}" for folder in (include, *more)]
        subprocess.run(["g++", "-w", *folders, str(source), "-o", str(binary)], check=True)
        out = subprocess.run([str(binary)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {tuple(line.split()[:2]): int(line.split()[2]) for line in out.splitlines()}


def wrong(include, more=()):
    """Yields the differences between the table and the headers of a folder."""
    if not (include / "cupti_pmsampling.h").exists():
        return
    known = table()
    found = measure(include, more, [(structure, field) for structure, field, _ in known])
    for structure, field, number in known:
        size = found[structure, field]
        if size != number and not (field == "-" and structure in GROWN and size > number):
            yield f"{structure}.{field} is {size}, not {number}"


def main():
    differences = [f"{argument}: {line}" for argument in sys.argv[1:] for line in wrong(pathlib.Path(argument))]
    for line in differences:
        print(line, file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
