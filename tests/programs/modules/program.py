"""Calls modules of the stand-in for PyTorch, and prints everything in Python that a start-up hook could have
changed."""

import os
import sys
import threading

own = os.path.dirname(os.path.abspath(__file__))
print("path", [entry for entry in sys.path if entry != own])
print("caches", sorted(path for path in sys.path_importer_cache if "tprof" in path))
customized = sys.modules.get("sitecustomize")
spec = getattr(customized, "__spec__", None)
print("sitecustomize", getattr(customized, "__file__", None), getattr(spec, "origin", None))
print("mark of the job's own", getattr(customized, "mark", None), getattr(sys, "customized", None))
if own not in sys.path:
    sys.path.insert(0, own)

from torch import compiler, nn
import torch

print("loader", vars(torch.__spec__.loader))
print("finders", [type(finder).__name__ for finder in sys.meta_path if getattr(finder, "name", None) == "torch"])


class Add(nn.Module):
    def forward(self, x):
        return x + 1


class Fails(nn.Module):
    def forward(self, x):
        raise KeyboardInterrupt if x < 0 else ValueError(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__(body=Body(), last=Add(), none=None)

    def forward(self, x):
        x = self._modules["last"](self._modules["body"](x))
        # One module is created in each call, and one is added after the first call.
        x = Add()(x)
        if "late" not in self._modules:
            self._modules["late"] = Add()
        return self._modules["late"](x)


class Body(nn.Module):
    def __init__(self):
        super().__init__(first=Add(), fails=Fails())

    def forward(self, x):
        try:
            return self._modules["fails"](self._modules["first"](x))
        except (ValueError, KeyboardInterrupt) as error:
            return x + len(type(error).__name__)


net, other = Net(), Net()
print("value", net(1), net(-9), other(2))
print("inner module", net._modules["body"](3))
compiler.compiling = True
print("compiled", net(4))
compiler.compiling = False
del other
third = Net()
print("value", third(5))
thread = threading.Thread(target=lambda: print("thread", net(6)))
thread.start()
thread.join()
sys.stdout.flush()
child = os.fork()
if child == 0:
    print("forked", net(7), flush=True)
    os._exit(0)
os.waitpid(child, 0)
try:
    Net.__call__(net)
except TypeError as error:
    print("error", error)
