"""Finds the files that each file of a crate uses, and the types that it defines, from its source.

The source is read as tokens, without a compiler: `mod` declarations give the tree of modules,
`use` declarations and the items of a module give its names, and every path or name in the rest of
a file is resolved through them to the file that defines it. Test code (`#[cfg(test)]`) is left
out. A re-export is not a use: a file that names a re-exported item uses the file that defines the
item. The targets of method calls are not seen.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<comment>/\*)
    | (?P<raw>(?:b|c)?r(?P<hashes>\#*)"(?s:.*?)"(?P=hashes))
    | (?P<text>(?:b|c)?"(?s:\\.|[^"\\])*")
    | (?P<char>b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'])')
    | (?P<lifetime>'\w+)
    | (?P<name>(?:r\#)?[^\W\d]\w*)
    | (?P<number>\d\w*)
    | (?P<path>::)
    | (?P<other>.)
    """,
    re.X,
)
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
KEYWORDS = set(
    "as async await break const continue crate dyn else enum extern false fn for if impl in let"
    " loop match mod move mut pub ref return self Self static struct super trait true type unsafe"
    " use where while".split()
)
TYPES = {"struct", "enum", "union", "trait", "type"}


def tokens(source):
    """Returns names, `::`, texts (from their quote on) and single characters."""
    found, at = [], 0
    while at < len(source):
        match = TOKEN.match(source, at)
        at = match.end()
        kind = match.lastgroup if match.lastgroup != "hashes" else "raw"
        if kind == "comment":
            depth = 1
            while depth:
                nested = re.compile(r"/\*|\*/").search(source, at)
                if not nested:
                    return found
                depth += 1 if nested.group() == "/*" else -1
                at = nested.end()
        elif kind == "text":
            found.append(match.group().lstrip("bc"))
        elif kind == "name":
            found.append(match.group().removeprefix("r#"))
        elif kind in ("path", "other"):
            found.append(match.group())
        elif kind in ("raw", "char", "number"):
            found.append('""' if kind == "raw" else "0")
    return found


def is_name(token):
    return token[0].isalpha() or token[0] == "_"


def group_end(list_, at):
    """Returns the index after the bracket that closes the one at `at`."""
    depth = 0
    while at < len(list_):
        if list_[at] in OPENING:
            depth += 1
        elif list_[at] in CLOSING:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return at


def of_test(attribute):
    """Whether an attribute's tokens are a `cfg` that only holds in tests."""

    def value(list_):
        """Returns False if the expression is false without `test`, whatever the other options are,
        and None if it depends on the other options."""
        if list_ == ["test"]:
            return False
        if len(list_) < 2 or list_[1] != "(":
            return None
        parts, start, at = [], 2, 2
        while at < len(list_) - 1:
            if list_[at] in OPENING:
                at = group_end(list_, at)
                continue
            if list_[at] == ",":
                parts.append(list_[start:at])
                start = at + 1
            at += 1
        parts = [value(part) for part in [*parts, list_[start:-1]] if part]
        if list_[0] == "not":
            return None if parts[0] is None else not parts[0]
        if list_[0] == "all":
            return False if False in parts else None
        if list_[0] == "any":
            return True if True in parts else None if None in parts else False
        return None

    return attribute[:2] == ["cfg", "("] and value(attribute[2:-1]) is False


def without_tests(list_):
    """Returns the tokens without the items behind `#[cfg(test)]`."""
    kept, at = [], 0
    while at < len(list_):
        if list_[at] != "#" or list_[at + 1 : at + 2] != ["["]:
            kept.append(list_[at])
            at += 1
            continue
        end = group_end(list_, at + 1)
        if not of_test(list_[at + 2 : end - 1]):
            kept += list_[at:end]
            at = end
            continue
        while list_[end : end + 2] == ["#", "["]:
            end = group_end(list_, end + 1)
        at = thing_end(list_, end)
    return kept


def thing_end(list_, at):
    """Returns the index after an item, a statement, a field or a match arm."""
    is_item = at < len(list_) and (list_[at] in KEYWORDS or list_[at] == "macro_rules")
    while at < len(list_) and list_[at] not in CLOSING:
        if list_[at] in OPENING:
            is_block = list_[at] == "{"
            at = group_end(list_, at)
            if is_block and list_[at : at + 1] not in (["."], ["?"], [";"], [","]):
                return at
            continue
        at += 1
        if list_[at - 1] == ";" or (list_[at - 1] == "," and not is_item):
            return at
    return at


@dataclass
class Use:
    """A name that a `use` declaration brings into a module; `*` for all names."""

    name: str
    path: tuple
    is_reexport: bool


@dataclass
class Module:
    path: tuple
    file: Path
    parent: "Module" = None
    # Alternatives by platform (`#[cfg(target_arch = …)]`) define the same names.
    is_alternative: bool = False
    modules: dict = field(default_factory=dict)
    items: set = field(default_factory=set)
    types: list = field(default_factory=list)
    uses: list = field(default_factory=list)
    bodies: list = field(default_factory=list)


def use_tree(list_, at, prefix=()):
    """Returns the leaves of a `use` tree, as (name, path), and the index after the tree."""
    path, name = list(prefix), None
    while at < len(list_):
        token = list_[at]
        if token == "{":
            leaves, at = [], at + 1
            while list_[at] != "}":
                found, at = use_tree(list_, at, tuple(path))
                leaves += found
                at += list_[at] == ","
            return leaves, at + 1
        if token == "*":
            return [("*", tuple(path))], at + 1
        if token == "as":
            name, at = list_[at + 1], at + 2
            break
        if token == "::":
            path += ["{{root}}"] if not path else []
        elif is_name(token):
            path.append(token)
        else:
            break
        at += 1
    if path[-1] == "self" and len(path) > 1:
        path.pop()
    return [(name or path[-1], tuple(path))], at


class Crate:
    """The modules of a crate, found from its root file."""

    def __init__(self, root, read=lambda file: file.read_text()):
        self.read = read
        self.macros = {}
        self.modules = []
        self.root = self._module((), Path(root), None, False)
        self._fill(self.root, without_tests(tokens(read(Path(root)))))

    def _module(self, path, file, parent, is_alternative):
        module = Module(path, file, parent, is_alternative)
        self.modules.append(module)
        return module

    def _child_file(self, module, name, given):
        folder = module.file.parent
        if given:
            return folder / given
        if module.file.name not in ("mod.rs", "lib.rs", "main.rs"):
            folder /= module.file.stem
        # Inline modules are folders for their content.
        depth = 0
        up = module
        while up.parent and up.parent.file == module.file:
            depth += 1
            up = up.parent
        folder = folder.joinpath(*module.path[len(module.path) - depth :], name)
        plain = folder.with_name(name + ".rs")
        return plain if self._exists(plain) else folder / "mod.rs"

    def _exists(self, file):
        try:
            self.read(file)
        except (OSError, KeyError):
            return False
        return True

    def _fill(self, module, list_):
        at = 0
        while at < len(list_):
            attributes = []
            while list_[at : at + 1] == ["#"]:
                start = at + 1 + (list_[at + 1] == "!")
                end = group_end(list_, start)
                attributes.append(list_[start + 1 : end - 1])
                at = end
            is_public = list_[at : at + 1] == ["pub"]
            if is_public:
                at += 1
                if list_[at] == "(":
                    at = group_end(list_, at)
            if at >= len(list_):
                return
            at = self._item(module, list_, at, attributes, is_public)

    def _item(self, module, list_, at, attributes, is_public):
        token = list_[at]
        if token == "mod":
            return self._mod(module, list_, at, attributes)
        if token == "use":
            leaves, end = use_tree(list_, at + 1)
            module.uses += [Use(name, path, is_public) for name, path in leaves]
            return end + 1
        if token == "macro_rules":
            self.macros.setdefault(list_[at + 2], module.file)
            module.items.add(list_[at + 2])
            end = group_end(list_, at + 3)
            module.bodies.append(list_[at + 3 : end])
            return end
        start = at
        while list_[at] in ("unsafe", "async", "extern", "auto", "default") or list_[at][0] == '"':
            at += 1
        if list_[at] == "const" and list_[at + 1] in ("fn", "unsafe", "extern", "async"):
            at += 1
            while list_[at] != "fn":
                at += 1
        kind = list_[at]
        if kind == "{":
            # The functions of an `extern` block belong to the module.
            end = group_end(list_, at)
            self._fill(module, list_[at + 1 : end - 1])
            return end
        if kind in ("const", "static", "type"):
            end, at_name = at, at + 1 + (list_[at + 1] == "mut")
            while list_[end] != ";":
                end = group_end(list_, end) if list_[end] in OPENING else end + 1
            end += 1
        else:
            end, at_name = thing_end(list_, at), at + 1
        if end < len(list_) and list_[end] == ";":
            end += 1
        if kind in TYPES or kind in ("fn", "const", "static"):
            name = list_[at_name]
            module.items.add(name)
            if kind in TYPES:
                module.types.append(name)
        elif kind != "impl":
            # Types whose definitions are written out in a macro call.
            for one, (word, name) in enumerate(zip(list_[at:end], list_[at + 1 : end])):
                is_declared = word in ("struct", "enum", "union") and is_name(name)
                if is_declared and list_[at + one - 1] != "$":
                    module.items.add(name)
                    module.types.append(name)
        module.bodies.append(list_[start:end])
        return max(end, start + 1)

    def _mod(self, module, list_, at, attributes):
        name = list_[at + 1]
        is_alternative = any("target_arch" in one or "target_os" in one for one in attributes)
        path = (*module.path, name)
        if list_[at + 2] == "{":
            end = group_end(list_, at + 2)
            child = self._module(path, module.file, module, is_alternative)
            module.modules[name] = child
            self._fill(child, list_[at + 3 : end - 1])
            return end
        given = [one[2][1:-1] for one in attributes if one[:2] == ["path", "="]]
        file = self._child_file(module, name, given and given[0])
        child = self._module(path, file, module, is_alternative)
        module.modules[name] = child
        self._fill(child, without_tests(tokens(self.read(file))))
        return at + 3

    # Names.

    def _named(self, module, name, is_last, seen):
        """Resolves a name in a module: to a module, or to the file that defines it."""
        if (module.path, name.removesuffix("!")) in seen:
            return None
        name = name.removesuffix("!")
        seen = seen | {(module.path, name)}
        if name in module.items and (is_last or name not in module.modules):
            return module.file
        if name in module.modules:
            return module.modules[name]
        for use in module.uses:
            if use.name == name:
                found = self.resolve(module, use.path, seen)
                if found is not None:
                    return found
        for use in module.uses:
            if use.name == "*":
                behind = self.resolve(module, use.path, seen)
                if isinstance(behind, Module):
                    found = self._named(behind, name, is_last, seen)
                    if found is not None:
                        return found
        return None

    def resolve(self, module, path, seen=frozenset()):
        """Returns the module that a path names, or the file that defines the item that it names.
        Returns None if the path leads out of the crate."""
        here, at = module, 0
        if path[0] == "crate":
            here, at = self.root, 1
        elif path[0] in ("self", "super"):
            while at < len(path) and path[at] in ("self", "super"):
                here = here.parent if path[at] == "super" else here
                at += 1
                if here is None:
                    return None
        for one in range(at, len(path)):
            found = self._named(here, path[one], one == len(path) - 1, seen)
            if found is None:
                if path[one].endswith("!"):
                    return self.macros.get(path[one][:-1])
                # A macro may have defined this name in a module of the crate, so the module's file
                # counts.
                return here.file if one > 0 else None
            if not isinstance(found, Module):
                return found
            here = found
        return here

    def _paths(self, list_):
        """Yields the paths and names in tokens. A name that a `use` among them brings in is
        replaced by its path."""
        at, before, local = 0, "", {}
        while at < len(list_):
            token = list_[at]
            if token == "use" and before in ("{", "}", ";", "]", ""):
                leaves, at = use_tree(list_, at + 1)
                local.update(leaves)
                yield from local.values()
                before = ";"
                continue
            if not is_name(token):
                before, at = token, at + 1
                continue
            path = [token]
            while list_[at + 1 : at + 2] == ["::"] and at + 2 < len(list_):
                if not is_name(list_[at + 2]):
                    break
                at += 2
                path.append(list_[at])
            if list_[at + 1 : at + 2] == ["!"] and list_[at + 2 : at + 3] != ["="]:
                path[-1] += "!"
            is_field = len(path) == 1 and list_[at + 1 : at + 2] == [":"]
            if before not in (".", "::", "fn") and not is_field:
                if len(path) > 1 or token not in KEYWORDS:
                    yield (*local.get(path[0], path[:1]), *path[1:])
            before, at = token, at + 1

    def edges(self):
        """Returns {(user, used): names that the first file takes from the second}."""
        found = {}
        for module in self.modules:
            paths = [use.path for use in module.uses if not use.is_reexport]
            for body in module.bodies:
                paths += self._paths(body)
            for path in paths:
                target = self.resolve(module, path)
                if isinstance(target, Path) and target != module.file:
                    found.setdefault((module.file, target), set()).add(path[-1].removesuffix("!"))
        return found

    def types(self):
        """Returns each type's name, and the modules that define it."""
        found = {}
        for module in self.modules:
            path = module.path[:-1] + ("*",) if module.is_alternative else module.path
            for name in module.types:
                found.setdefault(name, {})[path] = module.file
        return found
