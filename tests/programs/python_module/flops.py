"""Lets `tprof report flops` count operators that were noted without running them, as `tprof.flops` does; with
PyTorch it also counts a model's."""

import json
import sys

from tprof import _flops


def noted(name, sizes, values=None):
    types = ["float" if size else "Scalar" for size in sizes]
    values = values or [""] * len(sizes)
    args = {"Input Dims": sizes, "Input type": types, "Concrete Inputs": values}
    return json.dumps({"name": "aten::" + name, "args": args})


def counted():
    sums = _flops._sums({
        noted("addmm", [[16], [4, 8], [8, 16], [], []], ["", "", "", "1", "1"]): {
            ("Net", "Net.first"): 2,
            ("Net.second",): 1,
        },
        noted("relu", [[4, 16]]): {("Net",): 3},
        noted("view", [[4, 16], []]): {("Net",): 1},
        noted("no_such_function", [[4, 16]]): {(): 1},
    })
    product, elements = 2 * 4 * 8 * 16, 4 * 16
    assert sums.total == sums.needed == int(sums) == 3 * product + 3 * elements, sums
    assert sums.by_operator == {"aten::addmm": 3 * product, "aten::relu": 3 * elements}, sums.by_operator
    # A module includes the operations of the modules within it, named or not.
    assert sums.by_module == {
        "Net": 3 * product + 3 * elements, "Net.first": 2 * product, "Net.second": product,
    }, sums.by_module
    assert list(sums.uncounted) == ["aten::no_such_function"], sums.uncounted
    assert str(sums).splitlines()[0].split() == ["total", "3.26", "kFLOP"], str(sums)


def of_model():
    import torch

    import tprof

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Conv1d(4, 4, 3))
    batch = torch.randn(4, 4, 8)
    before = [one.clone() for one in model.parameters()]
    sums = tprof.flops(model, batch)
    dense, spread = 2 * 16 * 8 * 16, 2 * 4 * 14 * (4 * 4 * 3)
    assert sums.by_module["Sequential.0"] == dense and sums.by_module["Sequential.2"] == spread, sums.by_module
    assert sums.total == dense + spread + 16 * 16, str(sums)
    backward = tprof.flops(model, batch, backward=True)
    # The convolution has both gradients. The first layer has the gradient of its weight, and the sum for its bias.
    assert backward.total > sums.total + 2 * spread + dense, str(backward)
    assert all(torch.equal(one, old) for one, old in zip(model.parameters(), before))
    assert all(one.grad is None for one in model.parameters())
    try:
        tprof.flops(lambda x: x if x.sum() > 0 else -x, batch)
    except tprof.TprofError as error:
        assert "depends on values" in str(error), error
    else:
        raise AssertionError("without an error")


counted()
print("counted")
if "model" in sys.argv:
    of_model()
    print("of a model")
