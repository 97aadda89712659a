"""Takes device memory through PyTorch's allocator, and writes the bytes that PyTorch and the driver count.

`memory.py OUT`: PYTORCH_CUDA_ALLOC_CONF chooses the allocator. The memory is held to the end.
"""

import json
import os
import sys

import torch

BLOCKS = [3 << 20, 40 << 20, 100 << 20, 250 << 20]


def nvml_bytes():
    """Returns the used memory of the device, without the driver's reserve (version 2 of the call); None without
    NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used
    except Exception as error:  # whatever NVML lacks, the figure is missing
        print(f"NVML: {error}", file=sys.stderr)
        return None


def main():
    torch.cuda.init()
    # The driver loads a kernel's module when it first runs, which must not count.
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    free, nvml = torch.cuda.mem_get_info()[0], nvml_bytes()
    reserved = torch.cuda.memory_reserved()
    held = [torch.ones(size // 4, device="cuda") for size in BLOCKS]
    for size in BLOCKS:
        torch.ones(size // 4, device="cuda")
    torch.cuda.synchronize()
    after = nvml_bytes()
    found = {
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""), "held_bytes": sum(BLOCKS), "tensors": len(held),
        "reserved_bytes": torch.cuda.memory_reserved(), "reserved_before_bytes": reserved,
        "driver_bytes": free - torch.cuda.mem_get_info()[0],
        "nvml_bytes": after - nvml if nvml is not None and after is not None else None,
    }
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.flush()
    # Memory that is freed while the process ends does not matter here.
    os._exit(0)


if __name__ == "__main__":
    main()
