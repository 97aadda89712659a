"""Start-up hook of `--modules`: names the calls of each torch.nn.Module by its path.

tprof sets PYTHONPATH so that Python runs this file as its `sitecustomize`. The hook never imports
torch itself. When the job does, the hook wraps `Module.__call__` with one of PyTorch's ranges
(RecordFunction), which tprof records like any other. Otherwise the hook is invisible to the job: it
removes its entry from sys.path, and then imports the job's own `sitecustomize`, which replaces this
module in `sys.modules`. If the job has none, that import fails as it would without tprof.

The hook doesn't use `register_module_forward_hook`, because it makes `torch.compile` warn on stderr and trace another
way, nor `_RecordFunctionFast`, because it records only while a torch.profiler runs. No range begins while anything is
compiled, traced or exported. With PyTorch 2.15.0, frames, operators, graph breaks and graphs are equal with and without
the hook. A call costs 2.5 us with its recording (0.75 to 3.3 us), of which making the range takes 1.3.
"""

import os
import sys


def _note(text):
    """Adds a line about this process to the session's list of processes in which the hook ran. tprof reads the list
    when the processes have ended."""
    try:
        import time

        path = os.path.join(os.environ["TPROF_SESSION"], "modules")
        line = "%d %d %s\n" % (os.getpid(), time.monotonic_ns(), text)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode("utf-8", "replace"))
        finally:
            os.close(file)
    except (OSError, KeyError):
        pass


class _Finder:
    """A finder that waits for the import of one module, lets the other finders find it, and calls
    `then` after the module was executed."""

    def __init__(self, name, then):
        self.name = name
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = None
        for other in list(sys.meta_path):
            if other is not self and hasattr(other, "find_spec"):
                spec = other.find_spec(name, path, target)
                if spec is not None:
                    break
        loader = getattr(spec, "loader", None)
        if loader is None or isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module):
            # The hook's `exec_module` is removed from the loader, so that the loader's own one is
            # visible again.
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self.leave()
            try:
                self.then(module)
            except Exception as error:
                _note("missing " + repr(error))

        try:
            loader.exec_module = exec_module
        except Exception:
            _note("missing the loader of %s cannot be followed" % name)
        return spec

    def leave(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Paths:
    """Stores the path of each module, by the module's id. A path begins at the outermost module
    that was called. If a module is deleted, so is its path."""

    def __init__(self):
        import weakref

        class Kept(weakref.ref):
            __slots__ = ("key", "root", "number")

        self.kept_as = Kept
        # Names of ranges, by the module's id. This is all that a call of a known module needs.
        self.names = {}
        self.paths = {}
        self.kept = {}
        # By class, the numbers of its outermost modules that exist now.
        self.numbers = {}
        # Pairs of a caller's path and a class of modules that the caller creates in each call. Such
        # modules aren't in the caller, so it isn't searched for them again.
        self.made_in_calls = set()

    def forget(self, kept):
        key = kept.key
        self.names.pop(key, None)
        self.paths.pop(key, None)
        self.kept.pop(key, None)
        if kept.number is not None:
            self.numbers.get(kept.number[0], set()).discard(kept.number[1])

    def name(self, module, caller):
        """Names a module that has no name yet, and returns the name. `caller` is the module that called it, or None."""
        kind = type(module).__name__
        try:
            around = None if caller is None else self.paths.get(id(caller))
            if around is None:
                self.add(module, None)
            else:
                # The module was added after the first call of the outermost module, or was created in this call.
                direct = [key for key, child in caller._modules.items() if child is module]
                if not direct and (around, kind) not in self.made_in_calls:
                    self.add(caller, around)
                    if id(module) not in self.names:
                        self.made_in_calls.add((around, kind))
                if id(module) not in self.names:
                    self.add(module, "%s.%s" % (around, direct[0] if direct else kind))
            return self.names[id(module)]
        except Exception:
            return "nn.Module: %s (%s)" % (kind, kind)

    def add(self, root, path):
        """Names the module `root` and all modules in it. If `path` is None, it is an outermost module."""
        number = None
        if path is None:
            inner = root._modules.get("_orig_mod") or root
            kind = type(inner).__name__
            used = self.numbers.setdefault(kind, set())
            number = 1
            while number in used:
                number += 1
            used.add(number)
            path = kind if number == 1 else "%s#%d" % (kind, number)
            number = (kind, number)
        found = {}
        todo = [(root, path)]
        while todo:
            module, path = todo.pop()
            if id(module) in found:
                continue
            found[id(module)] = (module, path)
            for key, child in reversed(list(module._modules.items())):
                if child is not None:
                    # The wrapper that torch.compile adds isn't part of the path.
                    todo.append((child, path if key == "_orig_mod" else path + "." + key))
        for key, (module, path) in found.items():
            before = self.kept.get(key)
            # If two outermost modules share a module, its first path stays.
            if before is not None and before.root != key and before.root not in found:
                continue
            if before is None:
                before = self.kept[key] = self.kept_as(module, self.forget)
                before.key = key
                before.number = None
            elif before.number is not None and module is not root:
                self.numbers.get(before.number[0], set()).discard(before.number[1])
                before.number = None
            before.root = id(root)
            self.paths[key] = path
            self.names[key] = "nn.Module: %s (%s)" % (path, type(module).__name__)
        if number is not None:
            self.kept[id(root)].number = number


def _wrap(torch):
    """Wraps the call of each module and returns the wrapper's code."""
    original = torch.nn.Module.__call__
    is_compiling = torch.compiler.is_compiling
    enter = torch._C._autograd._record_function_with_args_enter
    leave = torch._C._autograd._record_function_with_args_exit
    paths = _Paths()
    name_of = paths.names.get

    def name_new(module):
        frame = sys._getframe(2)
        while frame is not None and frame.f_code is not _wrapped_call_impl.__code__:
            frame = frame.f_back
        return paths.name(module, None if frame is None else frame.f_locals["self"])

    # The wrapper has the name of the function that it wraps, because torch.compile looks for that name.
    def _wrapped_call_impl(self, *args, **kwargs):
        if is_compiling():
            return original(self, *args, **kwargs)
        handle = enter(name_of(id(self)) or name_new(self))
        try:
            return original(self, *args, **kwargs)
        finally:
            leave(handle)

    torch.nn.Module.__call__ = _wrapped_call_impl
    return _wrapped_call_impl.__code__


def _torch_is_there(torch):
    for name in ("nn", "compiler.is_compiling", "_C._autograd._record_function_with_args_enter"):
        part = torch
        for word in name.split("."):
            part = getattr(part, word, None)
        if part is None:
            _note("missing PyTorch %s has no torch.%s" % (getattr(torch, "__version__", "?"), name))
            return
    code = _wrap(torch)
    _note("named")
    # torch.compile would compile the wrapper's frame, so it is told to skip the wrapper's code.
    dynamo = "torch._dynamo.eval_frame"
    if dynamo in sys.modules:
        sys.modules[dynamo].skip_code(code)
    else:
        sys.meta_path.insert(0, _Finder(dynamo, lambda module: module.skip_code(code)))


def _start():
    own = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    sys.path_importer_cache.pop(own, None)
    if "TPROF_SESSION" in os.environ:
        sys.meta_path.insert(0, _Finder("torch", _torch_is_there))


try:
    _start()
except Exception as error:
    _note("missing " + repr(error))
del sys.modules[__name__]
import sitecustomize  # noqa: E402, F401  the next on sys.path, under this name
