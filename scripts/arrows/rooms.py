"""The order inside a crate: circles, floors, and types that share a name.

Three rules for each crate's own files, without their tests (`rust.py` describes how it reads
them):

1. **Circles.** A circle is a largest set of files that all reach each other. The only one allowed
   is a module and one of its children: `report/mod.rs` uses `report/tables.rs`, which uses a type
   of `report/mod.rs`. If two children use their parent and the parent uses both, that is a circle
   of three files: move the shared part to a file of its own. Between sibling modules, each taken
   with everything below it, no circle is allowed at all. So folders have an order, too.
2. **Floors.** If the root file (`lib.rs`, `main.rs`) declares its modules in paragraphs separated
   by blank lines, a module uses only modules of its own paragraph and of the paragraphs above it.
   No module uses an item that the root itself defines, except macros, which are defined above the
   modules that use them.
3. **Names.** No two types (struct, enum, union, trait, alias) of a crate share a name.
"""

import re
from pathlib import Path

from rust import Crate, of_test, tokens


def circles(graph):
    """Returns the strongly connected sets of more than one node, each sorted."""
    order, low, stack, found = {}, {}, [], []

    def visit(start):
        work = [(start, iter(sorted(graph.get(start, ()))))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in stack:
                    low[node] = min(low[node], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    at = stack.index(node)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    del stack[at:]

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def paragraphs(source):
    """Returns the names of the modules that a root file declares, by paragraph."""
    found, now, is_test = [], [], False
    for line in source.splitlines():
        line = line.split("//")[0].strip() if not line.strip().startswith("//") else "//"
        if line.startswith("#["):
            is_test = is_test or of_test(tokens(line)[2:-1])
            continue
        declared = re.fullmatch(r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", line)
        if declared and not is_test:
            now.append(declared.group(1))
        is_test = False
        if not line and now:
            found.append(now)
            now = []
    return [*found, now] if now else found


def ties(edges, parts, base):
    """Yields the edges within a set of files, as text."""
    for (user, used), names in sorted(edges.items()):
        if user in parts and used in parts:
            some = ", ".join(sorted(names)[:4]) + (", …" if len(names) > 4 else "")
            yield f"    {user.relative_to(base)} -> {used.relative_to(base)}: {some}"


def is_family(circle, modules):
    """Whether two files are a module and a child that it declares."""
    if len(circle) != 2:
        return False
    a, b = sorted((modules[file] for file in circle), key=len)
    return b[: len(a)] == a and len(b) == len(a) + 1


def wrong_circles(edges, modules, base):
    graph = {}
    for user, used in edges:
        graph.setdefault(user, set()).add(used)
    for circle in circles(graph):
        if not is_family(circle, modules):
            files = ", ".join(str(file.relative_to(base)) for file in circle)
            yield "\n".join([f"circle of files: {files}", *ties(edges, circle, base)])


def wrong_siblings(edges, modules):
    folders = {}
    for (user, used), names in sorted(edges.items()):
        a, b = modules[user], modules[used]
        common = 0
        while common < min(len(a), len(b)) and a[common] == b[common]:
            common += 1
        if common < min(len(a), len(b)):
            beside = folders.setdefault(a[:common], {})
            tie = beside.setdefault((a[common], b[common]), [])
            tie.append(f"{user.name} takes {', '.join(sorted(names)[:3])} of {used.name}")
    for folder, beside in sorted(folders.items()):
        graph = {}
        for user, used in beside:
            graph.setdefault(user, set()).add(used)
        for circle in circles(graph):
            lines = [f"circle of modules in {'::'.join(('crate', *folder))}: {', '.join(circle)}"]
            for (user, used), tie in sorted(beside.items()):
                if user in circle and used in circle:
                    lines.append(f"    {user} -> {used}: {'; '.join(tie[:3])}")
            yield "\n".join(lines)


def wrong_floors(edges, modules, macros, floors, base):
    floor = {name: at for at, names in enumerate(floors) for name in names}
    for (user, used), names in sorted(edges.items()):
        a, b = modules[user], modules[used]
        if a and b and floor.get(a[0], 0) < floor.get(b[0], 0):
            some = ", ".join(sorted(names)[:4])
            yield (
                f"upwards: {user.relative_to(base)} takes {some} of {used.relative_to(base)}, "
                f"but the root declares `{b[0]}` below `{a[0]}`"
            )
        names = sorted(names - macros)
        if a and not b and names:
            yield f"upwards: {user.relative_to(base)} takes {', '.join(names[:4])} of the root"


def wrong_names(types):
    for name, places in sorted(types.items()):
        if len(places) > 1:
            where = ", ".join("::".join(place) or "the root" for place in sorted(places))
            yield f"{len(places)} types are named {name}: {where}"


def wrong(root, read=lambda file: file.read_text()):
    """Returns the violations of the rules in the crate with this root file, each as a text."""
    root = Path(root)
    crate = Crate(root, read)
    edges = crate.edges()
    modules = {module.file: module.path for module in reversed(crate.modules)}
    yield from wrong_circles(edges, modules, root.parent)
    yield from wrong_siblings(edges, modules)
    yield from wrong_floors(edges, modules, set(crate.macros), paragraphs(read(root)), root.parent)
    yield from wrong_names(crate.types())
