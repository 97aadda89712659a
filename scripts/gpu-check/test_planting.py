"""Plants faults into a bundle: it changes a row, an entry of the journal, or a JSON file."""

import gzip
import json
import os
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import raw

PROGRAM = "truth-12"


def edit_json(path, change):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        value = json.load(file)
    value = change(value) or value
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump(value, file)


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump(value, file)


def rows_of(table, change, folder=PROGRAM, first=None):
    """Returns a fault: `change(row)` on the first row of a table, or on the first for which `first` holds."""

    def plant(bundle):
        def edit(tables):
            for rank in tables["ranks"]:
                columns = rank["tables"][table]["columns"]
                rows = rank["tables"][table]["rows"]
                for at, row in enumerate(rows):
                    named = dict(zip(columns, row))
                    if first is None or first(named):
                        changed = change(named)
                        rows[at : at + 1] = [] if changed is None else [[one[c] for c in columns] for one in changed]
                        return
            raise AssertionError(f"no such row of {table}")

        edit_json(f"{bundle}/{folder}/tables.json.gz", edit)

    return plant


def with_values(**values):
    return lambda row: [{**row, **values}]


def drop(row):
    return None


def twice(row):
    return [row, row]


def entries_of(what, change, only=None, folder=PROGRAM):
    """Returns a fault in the journal: `change` returns the entries that replace the first matching entry, which may
    be none."""
    number = next(number for number, name in raw.WHAT.items() if name == what)

    def plant(bundle):
        path = f"{bundle}/{folder}/raw.cupti"
        data, out, done, at = open(path, "rb").read(), b"", False, 0
        while at < len(data):
            head = raw.HEAD.unpack_from(data, at)
            body = data[at + raw.HEAD.size : at + raw.HEAD.size + head[4]]
            at += raw.HEAD.size + head[4]
            if head[1] == raw.JOURNAL:
                kept = b""
                for entry in raw.ENTRY.iter_unpack(body):
                    if entry[0] == number and not done and (only is None or only(entry)):
                        changed = change(entry)
                        done = True
                        kept += b"".join(raw.ENTRY.pack(*one) for one in changed)
                    else:
                        kept += raw.ENTRY.pack(*entry)
                body = kept
            out += raw.HEAD.pack(*head[:4], len(body)) + body
        assert done, f"no entry {what}"
        with open(path, "wb") as file:
            file.write(out)

    return plant


def numbers(*, at=None, one=None, two=None, three=None):
    def change(entry):
        what, thread, at_ns, *rest = entry
        given = [rest[i] if new is None else new for i, new in enumerate((one, two, three))]
        return [(what, thread, at_ns if at is None else at, *given)]

    return change


def bytes_of_first_buffer(change):
    def plant(bundle):
        path = f"{bundle}/{PROGRAM}/raw.cupti"
        data, at = bytearray(open(path, "rb").read()), 0
        while raw.HEAD.unpack_from(data, at)[1] != raw.BUFFER:
            at += raw.HEAD.size + raw.HEAD.unpack_from(data, at)[4]
        change(data, at + raw.HEAD.size, raw.HEAD.unpack_from(data, at)[4])
        with open(path, "wb") as file:
            file.write(data)

    return plant


def other_kind(data, at, length):
    struct.pack_into("=I", data, at, 999)


def in_file(name, change):
    return lambda bundle: edit_json(f"{bundle}/{name}", change)


def set_in(name, *keys, value):
    def change(whole):
        at = whole
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return in_file(name, change)


def step_fault(name, **values):
    def change(steps):
        next(one for one in steps if one["name"].startswith(name)).update(values)

    return in_file("steps.json", change)


def part_fault(folder, part, **values):
    def change(truth):
        next(one for one in truth["parts"] if one["part"] == part).update(values)

    return in_file(f"{folder}/traced.json", change)


def keep_only_journal(path):
    data, out, at = open(path, "rb").read(), b"", 0
    while at < len(data):
        head = raw.HEAD.unpack_from(data, at)
        end = at + raw.HEAD.size + head[4]
        out += data[at:end] if head[1] == raw.JOURNAL else b""
        at = end
    with open(path, "wb") as file:
        file.write(out)


def part_of_cost(bundle, part, **values):
    for number in range(2):
        edit_json(f"{bundle}/cost/traced-{number}.json", lambda truth: [
            one.update(values) for one in truth["parts"] if one["part"] == part] and None)
