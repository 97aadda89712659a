"""Reads from ELF files of x86-64 what is needed to find call sites: imports, the stubs that lead to them, and
calls of both in the code."""

import collections
import mmap
import pathlib
import re
import struct

SHT_DYNSYM, SHT_RELA = 11, 4
GLOB_DAT, JUMP_SLOT = 6, 7
EXECUTABLE = 4
# `call` and `jmp` by a distance of four bytes.
NEAR = re.compile(rb"[\xe8\xe9]")
# `call *slot(%rip)` and `jmp *slot(%rip)`.
THROUGH = re.compile(rb"\xff[\x15\x25]", re.DOTALL)


class NotElf(ValueError):
    """The file isn't an ELF file of x86-64 with sections."""


class Elf:
    """A shared library or program, mapped into memory."""

    def __init__(self, path):
        with open(path, "rb") as file:
            if file.read(20)[:6] != b"\x7fELF\x02\x01":
                raise NotElf(path)
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if struct.unpack_from("<H", self.bytes, 18)[0] != 62:
            raise NotElf(path)
        at, = struct.unpack_from("<Q", self.bytes, 40)
        size, count, names = struct.unpack_from("<HHH", self.bytes, 58)
        heads = [struct.unpack_from("<IIQQQQIIQQ", self.bytes, at + size * i) for i in range(count)]
        if not heads:
            raise NotElf(f"{path}: no sections")
        self.sections = []
        for name, kind, flags, address, offset, length, link, _, _, entry in heads:
            text = self.text(heads[names][4] + name)
            self.sections.append((text, kind, flags, address, offset, length, link, entry))

    def text(self, at):
        return self.bytes[at:self.bytes.find(b"\0", at)].decode("utf-8", "replace")

    def imports(self):
        """Returns the names of undefined dynamic symbols by symbol number, and the names of defined ones."""
        undefined, defined = {}, set()
        for _, kind, _, _, offset, length, link, _ in self.sections:
            if kind != SHT_DYNSYM:
                continue
            strings = self.sections[link][4]
            for number in range(length // 24):
                name, _, _, section = struct.unpack_from("<IBBH", self.bytes, offset + 24 * number)
                text = self.text(strings + name)
                if section:
                    defined.add(text)
                elif text:
                    undefined[number] = text
        return undefined, defined

    def slots(self, undefined):
        """Returns {address of each word that the loader fills with an import: the import's name}."""
        slots = {}
        for _, kind, _, _, offset, length, _, _ in self.sections:
            if kind != SHT_RELA:
                continue
            for address, info, _ in struct.iter_unpack("<QQq", self.bytes[offset:offset + length // 24 * 24]):
                if info & 0xFFFFFFFF in (GLOB_DAT, JUMP_SLOT) and info >> 32 in undefined:
                    slots[address] = undefined[info >> 32]
        return slots

    def calls(self, slots):
        """Counts how often the code calls, or jumps to, each import: through its stub or its slot."""
        stubs, counts = {}, collections.Counter()
        code = [s for s in self.sections if s[2] & EXECUTABLE and s[1] == 1]
        for name, _, _, address, offset, length, _, _ in code:
            data = self.bytes[offset:offset + length]
            for found in THROUGH.finditer(data):
                at = found.start()
                if at + 6 > length:
                    continue
                target = address + at + 6 + struct.unpack_from("<i", data, at + 2)[0]
                if target not in slots:
                    continue
                if not name.startswith((".plt", ".iplt")):
                    counts[slots[target]] += 1
                    continue
                begin = at - (data[at - 1:at] == b"\xf2")
                begin -= 4 * (data[begin - 4:begin] == b"\xf3\x0f\x1e\xfa")
                stubs[address + begin] = slots[target]
        for name, _, _, address, offset, length, _, _ in code:
            if name.startswith((".plt", ".iplt")):
                continue
            data = self.bytes[offset:offset + length]
            base = address + 5
            unpack = struct.Struct("<i").unpack_from
            for found in NEAR.finditer(data, 0, max(length - 4, 0)):
                at = found.start()
                stub = stubs.get(base + at + unpack(data, at + 1)[0])
                if stub:
                    counts[stub] += 1
        return counts

    def strings(self, wanted):
        """Returns the wanted names that the file contains as whole strings, as a file that calls `dlsym`
        would."""
        found = set()
        for name, kind, _, _, offset, length, _, _ in self.sections:
            if kind != 1 or not name.startswith((".rodata", ".data", ".lrodata", ".ldata")):
                continue
            for text in wanted.findall(self.bytes, offset, offset + length):
                found.add(text.decode())
        return found


def libraries(folder):
    """Yields the ELF files with sections below a folder, in order of their names."""
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and not path.is_symlink():
            try:
                yield path, Elf(path)
            except (NotElf, struct.error):
                continue
