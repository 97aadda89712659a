"""Compares hooks and records with the headers of CUDA and NCCL that are on PyPI.

`signatures.py CACHE [--all | --fetch]` checks the oldest, the last 12 and the newest CUDA by their headers of the
runtime, driver and CUPTI. With `--all` it checks each CUDA 12 and 13, with cuBLAS and NCCL (3 GB to download);
`--fetch` only downloads (45 MB). For each hook it checks the number of argument words on the stack, that no argument is
a floating-point number, and the types of the arguments that the table calls streams, bytes, counts, communicators and
element types. For each record it checks the offsets of its fields. It also checks each of NVIDIA's numbers that the
sources repeat. With `--all`, a hook that no header declares is an error.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bindgen"))
import facts  # noqa: E402
import headers  # noqa: E402
import hooks  # noqa: E402
import offsets  # noqa: E402
import pm_sampling  # noqa: E402
from prototypes import Headers, parameters, places  # noqa: E402

SMALL = ("12.0", "12.9", "13.5")
NEWEST = "13.5"
# The checked headers declare none of these. The first two have no arguments and are in a header of a separate wheel;
# the third is from CUDA 11.3, for programs of that time.
UNDECLARED = {"cudaProfilerStart", "cudaProfilerStop", "cuGetProcAddress"}
# Number of argument registers that a hook in `preload-shim/src/hooks/cupti.rs` passes on.
CLIENT_REGISTERS = 4
STREAM = r"\b(cudaStream_t|CUstream)\b"
SIZE = r"\bsize_t\b"
KERNEL = r"\bvoid\b|\bcudaKernel_t\b"


def wanted(does):
    """Yields (place, type) for each argument that the table reads. A place is a register, or `s` and a word."""
    def place(text):
        kind, at = re.fullmatch(r"(Register|Stack|Field|Pointee)\((\d+)\)", text).groups()
        return {"Register": int(at), "Stack": f"s{at}"}.get(kind)

    optional = r"(?:None|Some\((\d+)\))"
    rules = [
        (r"launches\((\d), (.*)\)", lambda m: [(int(m[1]), KERNEL), (place(m[2]), STREAM)]),
        (r"plain\((\d)\)", lambda m: [(int(m[1]), STREAM)]),
        (rf"takes\(.*, {optional}\)", lambda m: [(0, r"\*"), (1, SIZE), (m[1] and int(m[1]), STREAM)]),
        (rf"copies\((\d), {optional}, {optional}\)", lambda m: [
            (int(m[1]), SIZE), (m[2] and int(m[2]), "cudaMemcpyKind"), (m[3] and int(m[3]), STREAM)]),
        (rf"Effect::Frees {{ stream: {optional}", lambda m: [(m[1] and int(m[1]), STREAM)]),
        (rf"talks\((\d), (\d), {optional}, (.*), (.*)\)", lambda m: [
            (int(m[1]), SIZE), (int(m[2]), "ncclDataType_t"), (m[3] and int(m[3]), r"\bint\b"),
            (place(m[4]), "ncclComm_t"), (place(m[5]), STREAM)]),
        (rf"typed\(\[(\d+), (\d+), (\d+)\], {optional}, {optional}, .*\)", lambda m: [
            *((f"s{m[at]}", "cudaDataType") for at in (1, 2, 3)),
            (m[4] and f"s{m[4]}", "batchCount"), (m[5] and f"s{m[5]}", "cublasComputeType_t")]),
        (rf"gemm\([\w:]+, {optional}, .*\)", lambda m: [(m[1] and f"s{m[1]}", "batchCount")]),
        (r"groups\(.*, (\d+), \w+\)", lambda m: [
            (f"s{m[1]}", "group_count"), (f"s{int(m[1]) + 1}", "group_size")]),
    ]
    for pattern, read in rules:
        if match := re.match(pattern, does):
            return [(at, kind) for at, kind in read(match) if at is not None]
    return []


def declared(read, texts, table):
    """Returns the parameters of each hooked function that these headers declare. Functions for per-thread streams are
    declared under the plain name. Some functions are declared only in C++, in `texts`."""
    found = {}
    for name in table:
        plain = re.sub(r"_pt[sd][sz]$", "", name)
        for text, of in [(read.text, name), (texts, name), (read.text, plain)]:
            given = parameters(text, of)
            if given is not None:
                found[name] = given
                break
    return found


def wrong_hooks(read, texts, table, seen):
    """Returns the differences between the table and the headers."""
    found = declared(read, texts, table)
    seen.update(found)
    for name, (words, floats, registers, stack) in places(read, found).items():
        _, ours, does = table[name]
        if words != ours:
            yield f"{name}: {words} words of arguments on the stack, the table has {ours}"
        if floats:
            yield f"{name}: takes a floating-point number, which no hook passes on"
        for at, kind in wanted(does):
            where = stack if str(at).startswith("s") else registers
            number = int(str(at).lstrip("s"))
            there = where[number] if number < len(where) else "nothing"
            if not re.search(kind, there):
                yield f"{name}: {at} is `{there}`, not {kind}"


def wrong_clients(read, hooked):
    """Yields CUPTI's functions that have more arguments than their hooks pass on."""
    found = {name: parameters(read.text, name) for name in hooked if name.startswith("cupti")}
    found = {name: given for name, given in found.items() if given is not None}
    for name, (words, floats, registers, _) in places(read, found).items():
        if words or floats or len(registers) > CLIENT_REGISTERS:
            yield f"{name}: takes more than {CLIENT_REGISTERS} words in registers"


def wrong_twins(include, hooked):
    """Yields hooked functions that programs with per-thread streams call by a name that has no hook."""
    text = (include / "cuda_runtime_api.h").read_text(errors="replace")
    for name, kind in re.findall(r"#define (\w+)\s+__CUDART_API_PT(SZ|DS)\(", text):
        if name in hooked and f"{name}_pt{kind.lower()}" not in hooked:
            yield f"{name}_pt{kind.lower()}: no hook, and {name} has one"


def wrong_numbers(read, numbers, seen):
    """Yields the numbers that differ from these headers."""
    theirs = read.values([expression for expression, _, _ in numbers])
    seen.update(theirs)
    for expression, number, source in numbers:
        if theirs.get(expression, number) != number:
            yield f"{source}: {expression} is {theirs[expression]}, not {number}"


def wrong_offsets(include, more):
    """Yields the fields of records whose offset differs from the committed table."""
    lines = (hooks.ROOT / "crates/cupti-sys/tests/offsets.txt").read_text().splitlines()[2:]
    known = {}
    for line in lines:
        record, field, *numbers = line.split()
        if field != "-":
            known[record, field] = int(next(number for number in numbers if number != "-"))
    found, _ = offsets.measure(include, more)
    for (record, field), offset in found.items():
        if known[record, field] != offset:
            yield f"{record}.{field} lies at {offset}, not {known[record, field]}"


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    cache, everything = Path(arguments[0]), "--all" in sys.argv
    cache.mkdir(parents=True, exist_ok=True)
    table = hooks.table()
    unhooked = table.keys() - hooks.exported()
    numbers = [(name, number, source) for source, name, number in facts.ours()]
    numbers += [(name, number, "bindings.rs") for name, number in facts.bindings().items()]
    seen, known, wrong = set(), set(), [f"{name}: in the table, and no hook" for name in unhooked]
    newest = headers.fetch(cache, NEWEST)
    parts = (*headers.PARTS, "cublas") if everything else headers.PARTS[:2]
    includes = [(version, headers.fetch(cache, version, parts))
                for version in (headers.WHEELS if everything else SMALL)]
    if "--fetch" in sys.argv:
        return 0
    for version, include in includes:
        names = ["cuda.h", "cuda_runtime_api.h", "library_types.h", "cupti.h"]
        if (include / "cublas_v2.h").exists():
            names += ["cublas_v2.h", "cublasLt.h"]
        read = Headers([include, newest], names)
        only_in_cpp = [*sorted(include.glob("crt/*.h")), *include.glob("cublas_api.h")]
        texts = " ".join(path.read_text(errors="replace") for path in only_in_cpp)
        texts = re.sub(r"/\*.*?\*/|//[^\n]*", " ", texts, flags=re.S)
        found = [*wrong_hooks(read, " ".join(texts.split()), table, seen), *wrong_numbers(read, numbers, known),
                 *wrong_clients(read, hooks.exported()), *wrong_twins(include, table.keys()), *wrong_offsets(include, [newest]), *pm_sampling.wrong(include, [newest])]
        read.close()
        wrong += [f"CUDA {version}: {line}" for line in found]
        print(f"CUDA {version}: {len(found)} wrong")
    for version in headers.NCCL if everything else ():
        include = headers.fetch(cache, version)
        read = Headers([include, newest], ["nccl.h"])
        found = [*wrong_hooks(read, "", table, seen), *wrong_numbers(read, numbers, known)]
        read.close()
        wrong += [f"{version}: {line}" for line in found]
        print(f"{version}: {len(found)} wrong")
    missing = table.keys() - seen - UNDECLARED
    unknown = {expression for expression, _, _ in numbers} - known
    print(f"{len(seen)} of {len(table)} hooks compared, {len(known)} of {len(known | unknown)} numbers")
    if everything:
        wrong += [f"{name}: declared by none of these headers" for name in sorted(missing)]
        wrong += [f"{name}: known to none of these headers" for name in sorted(unknown)]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
