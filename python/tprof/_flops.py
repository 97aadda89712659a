"""``tprof.flops``: the operations of a model, without running it.

The model is called once on fake tensors, which have sizes and no memory. Each operator that would run on a
device is noted as torch.profiler writes it, with sizes, types and values. ``tprof report flops``, the one
place that has the formulas, counts the operations.
"""

from __future__ import annotations

import json
import os
import tempfile

from . import _session
from ._binary import TprofError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

# Types with names that torch.profiler uses; other types keep PyTorch's names.
_TYPES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
    "int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char",
    "bool": "bool", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
    "float8_e4m3fn": "c10::Float8_e4m3fn", "float8_e5m2": "c10::Float8_e5m2",
}
# Operators that only call other operators. They are recorded all the same, so they must be decomposed here.
_COMPOSED = ("aten::_safe_softmax",)


class Flops:
    """The operations of one call of a model, of which a multiplication and an addition are two. ``int()`` of it
    is ``total``; ``str()`` of it is a table by module and operator."""

    def __init__(self) -> None:
        self.total = 0
        """The operations that run: ``flops`` of ``tprof report flops``."""
        self.needed = 0
        """The operations that the result needs, without the half that a causal mask leaves out: ``needed_flops``."""
        self.by_operator: Dict[str, int] = {}
        """The parts of ``total`` by operator, the largest first."""
        self.by_module: Dict[str, int] = {}
        """The parts of ``total`` by the path of a module (``Net.layers.0``), with the modules within it; the largest
        first. The operations of autograd between modules are in none."""
        self.uncounted: Dict[str, str] = {}
        """Operators whose operations are not counted, with the reason: ``total`` excludes them."""

    def __int__(self) -> int:
        return self.total

    def __repr__(self) -> str:
        return "<tprof.flops: %s>" % formatted(self.total)

    def __str__(self) -> str:
        width = max(map(len, [*self.by_operator, *self.by_module, "total"]))

        def lines(of: Dict[str, int]) -> List[str]:
            return ["%s  %s" % (name.ljust(width), formatted(flops)) for name, flops in of.items()]

        text = ["%s  %s" % ("total".ljust(width), formatted(self.total))]
        text += ["", *lines(self.by_module)] if self.by_module else []
        text += ["", *lines(self.by_operator)]
        text += ["", *("not counted: %s: %s" % item for item in self.uncounted.items())] if self.uncounted else []
        return "\n".join(text)


def formatted(flops: int) -> str:
    """Returns a number of operations as text: ``1.23 GFLOP``."""
    for unit, size in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)):
        if flops >= size:
            return "%.3g %s" % (flops / size, unit)
    return "%d FLOP" % flops


def flops(model: Callable[..., Any], *inputs: Any, backward: bool = False, device: Any = None, **named: Any) -> Flops:
    """Returns the operations of ``model(*inputs, **named)``. The model is a module or a function; with
    ``backward`` the operations of its gradients are included. Nothing is computed and no memory is taken, whatever
    device the tensors are on, which may be ``meta``. ``device`` names another device, because the operators that
    run can depend on it. The model's ``forward`` is called once, so its effects on anything but tensors are real.

    The count equals that of ``tprof report flops`` for a run of the model in which the same operators run. Needs
    PyTorch 2.2. Raises TprofError if the operators that run depend on the tensors' values, if the model has no
    output with a gradient although ``backward`` is set, or if the program ``tprof`` isn't found.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map
    from torch.utils.module_tracker import ModuleTracker

    counted: Dict[str, Dict[Tuple[str, ...], int]] = {}
    tracker = ModuleTracker()

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            # These only query a tensor, for its device for example, so they are not operations.
            if func._schema.name.startswith("prim::"):
                return func(*args, **kwargs)
            with self:
                if func._schema.name in _COMPOSED:
                    return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            result = func(*args, **kwargs)
            operator = _described(torch.Tensor, func._schema, args, kwargs)
            parents = tuple(sorted(name for name in tracker.parents if name != "Global"))
            of_parents = counted.setdefault(operator, {})
            of_parents[parents] = of_parents.get(parents, 0) + 1
            return result

    made: Dict[int, Any] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in made:
            place = device or ("cpu" if value.device.type == "meta" else value.device)
            one = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=place)
            one.requires_grad_(value.requires_grad)
            # The original is kept alive, so that no other object gets its id.
            made[id(value)] = (one, value)
        return made[id(value)][0]

    try:
        with torch.set_grad_enabled(backward), FakeTensorMode(allow_non_fake_inputs=True):
            args, kwargs = tree_map(fake, (inputs, named))
            call = model
            if isinstance(model, torch.nn.Module):
                tensors = {name: fake(value) for name, value in (*model.named_parameters(), *model.named_buffers())}

                def call(*args: Any, **kwargs: Any) -> Any:
                    return torch.func.functional_call(model, tensors, args, kwargs)

            with tracker:
                with Recorder():
                    outputs = call(*args, **kwargs)
                if backward:
                    ends = [one for one in tree_flatten(outputs)[0] if isinstance(one, torch.Tensor) and one.requires_grad]
                    if not ends:
                        raise TprofError("the model has no output with a gradient: backward=True needs one")
                    gradients = [torch.ones_like(one) for one in ends]
                    with Recorder():
                        torch.autograd.backward(ends, gradients)
    except torch._subclasses.fake_tensor.UnsupportedFakeTensorException as error:
        raise TprofError("the model's operators cannot be followed without running it: %s" % error) from error
    except Exception as error:
        if type(error).__name__ not in ("DataDependentOutputException", "DynamicOutputShapeException"):
            raise
        raise TprofError("which operators the model runs depends on values that exist only then: %s" % error) from error
    return _sums(counted)


def _described(tensor: Any, schema: Any, args: Any, kwargs: Dict[str, Any]) -> str:
    """Returns an operator as torch.profiler writes one, as JSON."""
    sizes, types, values = [], [], []
    for place, argument in enumerate(schema.arguments):
        if place < len(args):
            value = args[place]
        else:
            value = kwargs.get(argument.name, argument.default_value)
        size, kind, text = _argument(tensor, value)
        sizes.append(size)
        types.append(kind)
        values.append(text)
    given = {"Input Dims": sizes, "Input type": types, "Concrete Inputs": values}
    return json.dumps({"name": schema.name, "args": given})


def _argument(tensor: Any, value: Any) -> Tuple[List[Any], str, str]:
    """Returns the sizes, type and value of an argument."""
    if isinstance(value, tensor):
        name = str(value.dtype).rpartition(".")[2]
        return list(map(int, value.shape)), _TYPES.get(name, name), ""
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, tensor) for one in value):
        return [list(map(int, one.shape)) for one in value], "TensorList", ""
    if isinstance(value, (bool, int, float)):
        return [], "Scalar", str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float)) for one in value):
        return [], "ScalarList", "[%s]" % ", ".join(map(str, value))
    return [], "", ""


def _key(name: str, sizes: Any, types: Any, values: Any) -> str:
    return json.dumps([name, sizes, types, values])


def _sums(counted: Dict[str, Dict[Tuple[str, ...], int]]) -> Flops:
    """Passes each distinct operator to ``tprof report flops`` once, and multiplies its operations by the number of
    times that the operator ran."""
    events = [
        {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": number, "dur": 0.5, **json.loads(operator)}
        for number, operator in enumerate(counted)
    ]
    file, path = tempfile.mkstemp(suffix=".pt.trace.json", prefix="tprof-flops-")
    try:
        with os.fdopen(file, "w", encoding="utf-8") as trace:
            json.dump({"schemaVersion": 1, "traceEvents": events}, trace)
        tables = _session.document("report", "flops", path, "--json")["tables"]
    finally:
        os.unlink(path)
    rows = {}
    for row in tables["operators"]:
        shown = (json.loads(row["input_" + what] or "null") for what in ("shapes", "types", "values"))
        rows[_key(row["operator"], *shown)] = row
    sums = Flops()
    by_operator: Dict[str, int] = {}
    by_module: Dict[str, int] = {}
    modules = {module for of_parents in counted.values() for parents in of_parents for module in parents}
    for operator, of_parents in counted.items():
        one = json.loads(operator)
        row = rows.get(_key(one["name"], *(one["args"][what] for what in ("Input Dims", "Input type", "Concrete Inputs"))))
        if row is None:
            continue
        for parents, calls in of_parents.items():
            sums.total += row["flops"] * calls
            sums.needed += row["needed_flops"] * calls
            by_operator[one["name"]] = by_operator.get(one["name"], 0) + row["flops"] * calls
            # A backward pass names only the modules that it enters through a gradient, so the modules around these are
            # found by path.
            around = [module for module in modules if any(("%s." % one).startswith(module + ".") for one in parents)]
            for parent in around:
                by_module[parent] = by_module.get(parent, 0) + row["flops"] * calls

    def ordered(of: Dict[str, int]) -> Dict[str, int]:
        return dict(sorted(((name, count) for name, count in of.items() if count), key=lambda item: (-item[1], item[0])))

    sums.by_operator, sums.by_module = ordered(by_operator), ordered(by_module)
    sums.uncounted = {row["operator"]: row["why"] for row in tables["uncounted"]}
    return sums
