"""Counts calls of CUDA, NCCL and CUPTI in the libraries of packages, beside tprof's hooks.

Run `call_sites.py 'NAME VERSION=FOLDER'… >docs/call-sites.md`, where FOLDER has the content of a wheel. A call counts
if the preloaded library can interpose it: a call of an imported function, through its stub or its word in the global
offset table. Calls of functions that a library looks up with `dlsym`, or that are linked into it, don't count.
"""

import collections
import datetime
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import hooks  # noqa: E402
from elf import libraries  # noqa: E402

OURS = re.compile(r"(?:__)?(?:cuda|cu|nccl|cupti)[A-Z]\w+")
# Topics of a report, in order. A name belongs to the first topic that matches.
FAMILIES = [
    ("Launches", r"(?:__)?cu(?:da)?(?:GraphLaunch|Launch)\w*"),
    ("Memory", r"cu(?:da)?\w*(?:Malloc|Free|MemPool|MemAlloc|MemCreate|MemMap|MemUnmap|MemRelease|MemRetain|"
               r"MemImport|MemAddressReserve|MemAddressFree|HostAlloc|HostRegister|HostUnregister|"
               r"IpcOpenMemHandle|IpcCloseMemHandle|DriverEntryPoint|GetProcAddress|DeviceReset)\w*"),
    ("NCCL", r"nccl\w+"),
    ("Clients of CUPTI", r"cupti\w+"),
]
# NCCL functions that neither move data nor create or destroy a communicator.
ASIDE = re.compile(r"nccl(?:Get\w*(?:Error|Version|Id)\w*|Comm(?:Count|UserRank|CuDevice|GetAsyncError)|RedOp\w*)")
# A text from the runtime's error table: it shows that the runtime is linked into the file.
RUNTIME = b"no CUDA-capable device is detected"


def family(name):
    return next((title for title, pattern in FAMILIES if re.fullmatch(pattern, name)), None)


def count(folder):
    """Returns calls by name, names that are looked up by text, the number of files with calls, and the files with a
    runtime in them."""
    calls, texts, files, inside = collections.Counter(), set(), 0, []
    contents = set()
    for path, file in libraries(folder):
        # A library that is there under several names counts once.
        if (key := (len(file.bytes), hash(file.bytes[-65536:]))) in contents:
            continue
        contents.add(key)
        imports, _ = file.imports()
        wanted = {number: name for number, name in imports.items() if OURS.fullmatch(name)}
        if file.bytes.find(RUNTIME) >= 0:
            inside.append(path.name)
        texts |= file.strings(re.compile(rb"(?<=\0)(?:cuda|cu|nccl|cupti)[A-Z]\w+(?=\0)"))
        if wanted:
            files += 1
            found = file.calls(file.slots(wanted))
            calls.update({name: found[name] for name in wanted.values()})
    return calls, texts, files, inside


def table(title, packages, counted, hooked):
    names = {n for calls, *_ in counted for n in calls if family(n) == title and not ASIDE.fullmatch(n)}
    total = {name: sum(calls.get(name, 0) for calls, *_ in counted) for name in names}
    shown = [at for at, (calls, *_) in enumerate(counted) if any(name in calls for name in names)]
    yield f"\n## {title}\n"
    yield "| function | hook | " + " | ".join(packages[at].split()[0] for at in shown) + " |"
    yield "|---|---|" + "---:|" * len(shown)
    for name in sorted(names, key=lambda name: (-total[name], name)):
        cells = [f"{counted[at][0][name]:,}" if name in counted[at][0] else "" for at in shown]
        yield f"| `{name}` | {'yes' if name in hooked else '**no**'} | " + " | ".join(cells) + " |"


def main():
    packages, folders = zip(*(argument.split("=", 1) for argument in sys.argv[1:]))
    counted = [count(Path(folder)) for folder in folders]
    hooked = hooks.exported()
    print("# Call sites of CUDA in packages\n")
    print(f"Made by `scripts/cuda/call_sites.py` on {datetime.date.today()}: how often the code in wheels from PyPI")
    print("(x86-64) calls functions of CUDA, NCCL and CUPTI that it imports, and which of them tprof's preloaded")
    print("library intercepts. A function that is imported but never called (0) is one whose address the code takes.")
    print("Functions that a library contains or looks up with `dlsym` have no call sites here; the second table lists")
    print("such libraries.\n")
    print("| package | files with imports | call sites | launches with a hook | without |")
    print("|---|---:|---:|---:|---:|")
    for package, (calls, _, files, _) in zip(packages, counted):
        launches = {name: n for name, n in calls.items() if family(name) == "Launches" and "HostFunc" not in name}
        with_hook = sum(n for name, n in launches.items() if name in hooked)
        print(f"| {package} | {files} | {sum(calls.values()):,} | {with_hook:,} | {sum(launches.values()) - with_hook:,} |")
    print("\n| package | libraries with a CUDA runtime in them | launches named by texts only |")
    print("|---|---|---|")
    for package, (calls, texts, _, inside) in zip(packages, counted):
        by_text = sorted(name for name in texts - calls.keys() if family(name) == "Launches" and "Host" not in name)
        if inside or by_text:
            some = ", ".join(f"`{name}`" for name in by_text[:6]) + (", …" if len(by_text) > 6 else "")
            print(f"| {package} | {', '.join(f'`{name}`' for name in sorted(set(inside)))} | {some} |")
    for title, _ in FAMILIES:
        print("\n".join(table(title, packages, counted, hooked)))


if __name__ == "__main__":
    main()
