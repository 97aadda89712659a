"""Checks what code that runs inside the job depends on: crates that are made for it, and libc's declarations.

Cargo enforces all other borders between crates: a crate can use only those that its manifest names.
"""

import json
import subprocess
import sys

INJECTED = {"tprof-wire", "tprof-cfi", "tprof-cupti-sys", "tprof-inject", "tprof-agent", "tprof-preload", "tprof-cupti"}


def packages(*arguments):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["packages"]


def main():
    found = {}
    for folder in ("preload-shim", "cupti-agent"):
        found.update({package["name"]: package for package in packages("--manifest-path", f"{folder}/Cargo.toml")})
    missing = INJECTED - set(found)
    wrong = [f"{name}: no such crate; is the list in scripts/check-injected.py old?" for name in sorted(missing)]
    for name in sorted(INJECTED & set(found)):
        for dependency in found[name]["dependencies"]:
            if dependency["kind"] is None and dependency["name"] not in {*INJECTED, "libc"}:
                wrong.append(f"{name} -> {dependency['name']}: injected code may depend on libc alone")
    for text in wrong:
        print(text)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
