"""Parses declarations in C headers, and finds where the System V ABI of x86-64 puts their arguments."""

import re
import subprocess
import tempfile
from pathlib import Path

# Words that end a declaration without a name: `unsigned int`, not `int count`.
NAMELESS = set("int char long short unsigned signed float double void size_t".split())
# Types from headers that are left out, because they need C++ or parts that no available wheel has.
HALF = "typedef struct { unsigned short x; } {};\n"
STUBS = {
    "cuda_fp16.h": "#pragma once\n" + HALF.replace("{};", "__half;"),
    "cuda_bf16.h": "#pragma once\n" + HALF.replace("{};", "__nv_bfloat16;"),
    "cuda_fp8.h": "", "cuda_fp4.h": "",
}
REGISTERS = 6


class Headers:
    """Headers of one version, as a C compiler reads them."""

    def __init__(self, includes, names, defines=()):
        self.stubs = tempfile.TemporaryDirectory()
        for name, text in STUBS.items():
            Path(self.stubs.name, name).write_text(text)
        folders = [self.stubs.name, *map(str, includes)]
        self.options = ["-w", *(f"-I{folder}" for folder in folders), *defines]
        self.head = "".join(f"#include <{name}>\n" for name in names)
        out = self.run(["-E", "-P"], self.head)
        self.text = re.sub(r"\s+", " ", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", out))

    def close(self):
        self.stubs.cleanup()

    def run(self, options, source):
        command = ["gcc", "-fmax-errors=3", "-x", "c", *self.options, *options, "-"]
        return subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout

    def program(self, body, more=""):
        """Returns the output of a program that is built with these headers."""
        with tempfile.TemporaryDirectory() as folder:
            source = f"#include <stddef.h>\n#include <stdio.h>\n{self.head}{more}int main(void) {{\n{body}return 0;\n}}\n"
            self.run(["-o", f"{folder}/program"], source)
            done = subprocess.run([f"{folder}/program"], stdout=subprocess.PIPE, text=True, check=True)
            return done.stdout

    def values(self, expressions):
        """Returns the values of the expressions whose names are all in these headers."""
        words = set(re.findall(r"\w+", self.text))
        known = [e for e in expressions if set(re.findall(r"[A-Za-z_]\w*", e)) - {"offsetof", "sizeof"} <= words]
        lines = [f'printf("%lld\\n", (long long)({expression}));\n' for expression in known]
        return dict(zip(known, map(int, self.program("".join(lines)).split())))


def parameters(text, name):
    """Returns the parameters of a function that a text declares, or None."""
    for found in re.finditer(rf"(?<![\w.>]){name}\s*\(", text):
        depth, at, parts = 1, found.end(), [""]
        while depth and at < len(text):
            letter = text[at]
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter == "," and depth == 1:
                parts.append("")
            elif depth:
                parts[-1] += letter
            at += 1
        if not re.match(r"\s*;", text[at:at + 20]):
            continue
        parts = [" ".join(part.split("=")[0].split()) for part in parts]
        return [] if parts in (["void"], [""]) else parts
    return None


def named(parameter, at):
    """Returns a parameter as a member of a struct."""
    parameter = re.sub(r"(\w+)\s*\[\s*\w*\s*\]", r"*\1", parameter)
    last = re.search(r"(\w+)$", parameter)
    words = re.findall(r"\w+", re.sub(r"\b(const|enum|struct)\b", "", parameter))
    if "(" in parameter:
        return parameter
    if not last or last.group(1) in NAMELESS or len(words) == 1:
        return f"{parameter} argument{at}"
    return parameter


def member(declared):
    inner = re.search(r"\(\s*\w*\s*\*\s*(\w+)\s*\)", declared)
    return inner.group(1) if inner else re.search(r"(\w+)$", declared).group(1)


def places(headers, functions):
    """Returns, for each function with its parameters, the words on the stack, whether one is a floating-point number,
    and the parameter in each register and word of the stack."""
    body, more = "", ""
    for name, given in functions.items():
        members = [named(parameter, at) for at, parameter in enumerate(given)]
        fields = "".join(f"{one};" for one in members)
        more += f"struct arguments_{name} {{ {fields} char end; }};\n"
        for one in members:
            field = f"((struct arguments_{name} *)0)->{member(one)}"
            kind = f"_Generic({field}, float: 1, double: 1, default: 0)"
            body += f'printf("{name} %zu %d\\n", sizeof({field}), {kind});\n'
    sizes = {name: [] for name in functions}
    for line in headers.program(body, more).splitlines():
        name, size, floating = line.split()
        sizes[name].append((int(size), floating == "1"))
    found = {}
    for name, given in functions.items():
        registers, stack, floats = [], [], False
        for parameter, (size, floating) in zip(given, sizes[name]):
            words = (size + 7) // 8
            floats |= floating
            place = registers if words <= 2 and len(registers) + words <= REGISTERS else stack
            place += [parameter] * words
        found[name] = (len(stack), floats, registers, stack)
    return found
