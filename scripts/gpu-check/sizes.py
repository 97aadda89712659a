"""Makes `sizes.txt` from NVIDIA's headers: the lengths of CUPTI's records in each version.

`sizes.py CUPTI_INCLUDE:CUDA_INCLUDE…` compiles a program against each pair of folders and prints a line for
each version that CUPTI reports: `VERSION kind:bytes …`. The comment at a kind says which struct that
version writes ("The corresponding activity record structure is CUpti_ActivityKernel9"). The headers are in
NVIDIA's wheels (nvidia-cuda-cupti-cu12, -cupti, -runtime); nothing of them is kept.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import layouts


def documented(text):
    """Returns {number of a kind: struct}, as the header's enum documents it."""
    enum = text[text.index("typedef enum", text.index("CUPTI_ACTIVITY_KIND_INVALID") - 900) :]
    enum = enum[: enum.index("} CUpti_ActivityKind;")]
    found, number, at = {}, -1, 0
    for match in re.finditer(r"\b(CUPTI_ACTIVITY_KIND_\w+)\s*=\s*(\w+)\s*,?", enum):
        comment, at = enum[at : match.start()], match.end()
        number = int(match.group(2), 0) if match.group(2)[0].isdigit() else None
        comment = re.sub(r"[\s*]+", " ", comment)
        names = re.findall(r"(?:::|\\ref |record structures? (?:is|are) )(CUpti_Activity\w+)", comment)
        if number is not None and names:
            found[number] = names[0]
    return found


def measure(cupti, cuda):
    """Returns (version, {kind: bytes}) for a pair of folders."""
    text = pathlib.Path(cupti, "cupti_activity.h").read_text(encoding="utf-8")
    structs = {kind: name for kind, name in documented(text).items() if kind in layouts.STRUCTS}
    missing = set(layouts.STRUCTS) - set(structs)
    if missing:
        sys.exit(f"{cupti}: no struct is named for kinds {sorted(missing)}")
    lines = [f'printf(" {kind}:%zu", sizeof({name}));' for kind, name in sorted(structs.items())]
    program = (
        "#include <cupti.h>\n#include <stdio.h>\nint main(void) {\n"
        'printf("%u", (unsigned)CUPTI_API_VERSION);\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "s.c"), pathlib.Path(folder, "s")
        source.write_text(program)
        subprocess.run(["gcc", "-w", f"-I{cupti}", f"-I{cuda}", str(source), "-o", str(binary)], check=True)
        return subprocess.run([str(binary)], stdout=subprocess.PIPE, text=True, check=True).stdout


def main():
    lines = {measure(*pair.split(":")) for pair in sys.argv[1:]}
    print("# Made by sizes.py from NVIDIA's headers: CUPTI's version, then kind:bytes of its records.")
    print("\n".join(sorted(lines, key=lambda line: int(line.split()[0]))))


if __name__ == "__main__":
    main()
