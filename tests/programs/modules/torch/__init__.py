"""Stands in for PyTorch, with only the parts that the start-up hook of `--modules` uses. Prints ranges."""

import types

__version__ = "0"


class _Range:
    opened = []


def _enter(name):
    handle = object()
    _Range.opened.append((handle, name))
    print("range", "  " * (len(_Range.opened) - 1) + name, flush=True)
    return handle


def _exit(handle):
    last, name = _Range.opened.pop()
    if last is not handle:
        print("range out of order:", name)


class Module:
    def __init__(self, **children):
        self._modules = children

    def _wrapped_call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = _wrapped_call_impl


class compiler:
    compiling = False

    @staticmethod
    def is_compiling():
        return compiler.compiling


nn = types.SimpleNamespace(Module=Module)
_C = types.SimpleNamespace(
    _autograd=types.SimpleNamespace(
        _record_function_with_args_enter=_enter, _record_function_with_args_exit=_exit
    )
)
