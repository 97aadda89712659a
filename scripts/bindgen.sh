#!/bin/sh
# Regenerates crates/cupti-sys/src/bindings.rs and its table of offsets from NVIDIA's
# wheels on PyPI. Run it when the lists below change. The build uses the committed
# files, and needs neither CUDA nor libclang.
#
# Headers stay in a cache outside the repository (TPROF_CUDA_HEADERS, else
# ~/.cache/tprof/cuda-headers). Of their text, only names, types and numbers are kept:
# comments are stripped, and only listed declarations are let through.
# `scripts/bindgen.sh --check` compares the result with the committed files.
set -eu
cd "$(dirname "$0")/.."
cache=${TPROF_CUDA_HEADERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/cuda-headers}
versions='12.0 12.4 12.9 13.0 13.5'
declared=13.5 # the version whose declarations are kept; older versions of the records come with them
out=crates/cupti-sys
mkdir -p "$cache"

includes=
for version in $versions; do
    includes="$includes $(python3 scripts/cuda/headers.py "$cache" "$version")"
done

# Install fixed versions of bindgen and of the libclang that it loads.
if [ ! -x "$cache/tools/bin/bindgen" ]; then
    cargo install --quiet --locked bindgen-cli --version 0.72.1 --root "$cache/tools"
fi
if [ ! -d "$cache/libclang" ]; then
    python3 -m pip install --quiet --no-deps --target "$cache/libclang" libclang==18.1.1
fi
LIBCLANG_PATH=$cache/libclang/clang/native
export LIBCLANG_PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

types='CUptiResult|CUpti_Activity|CUpti_ActivityKind|CUpti_ActivityAttribute'
types="$types|CUpti_ActivityKernel(9|13)|CUpti_ActivityMemcpy(5|6|7)|CUpti_ActivityMemcpyPtoP4"
types="$types|CUpti_ActivityMemset(4|5)|CUpti_ActivityMemory(3|4)"
types="$types|CUpti_ActivitySynchronization2?|CUpti_ActivityOverhead3?|CUpti_ActivityAPI"
types="$types|CUpti_ActivityContext[34]?|CUpti_ActivityDevice[456]|CUpti_ActivityStream|CUpti_ActivityName"
types="$types|CUpti_ActivityGraphTrace2?|CUpti_ActivityExternalCorrelation|CUpti_ActivityMemcpyKind|CUpti_ActivityMemoryKind"
types="$types|CUpti_ActivityMemoryOperationType|CUpti_ActivitySynchronizationType"
types="$types|CUpti_ActivityThreadIdType|CUpti_ActivityFlag|CUpti_ActivityOverheadKind"
types="$types|CUpti_PCSampling(Data|PCData|StallReason|CollectionMode|ConfigurationAttributeType)"
types="$types|CUpti_PCSamplingConfigurationInfo(Params)?|CUpti_PCSampling(Enable|Disable|GetData)Params"
types="$types|CUpti_PCSamplingGet(Num)?StallReasonsParams|CUpti_ComputeCrcCallbackFunc"
types="$types|CUpti_SubscriberParams|CUpti_BuffersCallback(Request|Complete)Func(_v2)?|CUpti_CallbackDomain"
functions='cuptiGetVersion|cuptiGetTimestamp(_v2)?|cuptiGetResultString|cuptiGetCallbackName'
functions="$functions|cuptiActivity(Register(Callbacks)|Enable|Disable|SetAttribute|FlushAll|GetNextRecord)(_v2)?"
functions="$functions|cuptiActivityGetNumDroppedRecords(_v2)?|cuptiSetThreadIdType|cuptiSubscribe(_v2)?|cuptiUnsubscribe"
functions="$functions|cuptiActivityRegisterTimestampCallback|cuptiActivity(Enable|Disable)Context"
functions="$functions|cuptiActivityGetAttribute|cuptiActivityEnable(Runtime|Driver)Api(_v2)?|cuptiGetThreadIdType|cuptiActivityFlushPeriod"
functions="$functions|cuptiPCSampling(SetConfigurationAttribute|Enable|Disable|GetData|GetNumStallReasons|GetStallReasons)"
functions="$functions|cuptiRegisterComputeCrcCallback|cuptiProfilerInitialize"
functions="$functions|cuptiFinalize|cuptiEnableDomain|cuptiGetContextId|cuptiGetStreamIdEx"

printf '#include <cupti.h>\n#include <cupti_activity_deprecated.h>\n#include <cupti_pcsampling.h>\n#include <cupti_profiler_target.h>\n' >"$work/all.h"
"$cache/tools/bin/bindgen" "$work/all.h" \
    --rust-target 1.85 --use-core --ctypes-prefix core::ffi --no-doc-comments --no-layout-tests \
    --default-enum-style consts --no-prepend-enum-name --no-derive-debug \
    --allowlist-type "$types" --allowlist-function "$functions" \
    --raw-line '// Made by scripts/bindgen.sh from CUPTI '"$declared"': declarations alone.' \
    -- -I"$cache/$declared" -I"$(gcc -print-file-name=include)" >"$work/raw.rs"
# The numbers of the few calls that are distinguished by number.
calls='cudaMalloc_v3020|cudaFree_v3020|cudaMemcpy_v3020|cudaMemcpyAsync_v3020|cudaMemset_v3020|cudaMemsetAsync_v3020'
calls="$calls|cudaLaunchKernel_v7000|cudaLaunchKernelExC_v11060|cudaGraphLaunch_v10000|cudaStreamSynchronize_v3020"
calls="$calls|cudaDeviceReset_v3020|cudaDeviceSynchronize_v3020|cudaEventSynchronize_v3020|cudaEventRecord_v3020|cudaStreamWaitEvent_v3020"
calls="$calls|cudaStreamCreate_v3020|cudaStreamCreateWithFlags_v5000|cudaStreamDestroy_v5050|cudaEventCreateWithFlags_v3020"
calls="$calls|cudaEventDestroy_v3020|cudaEventQuery_v3020|cudaMallocAsync_v11020|cudaFreeAsync_v11020|cudaMallocHost_v3020"
calls="$calls|cudaFreeHost_v3020|cudaMallocManaged_v6000|cudaHostAlloc_v3020|cudaSetDevice_v3020|cudaGetDevice_v3020"
calls="$calls|cudaGetLastError_v3020|cudaPeekAtLastError_v3020|cudaGetDeviceCount_v3020|cudaEventElapsedTime_v3020"
calls="$calls|cudaGraphInstantiate_v12000|cudaStreamBeginCapture_v10000|cudaStreamEndCapture_v10000|cudaStreamIsCapturing_v10000"
calls="$calls|__cudaGetKernel_v13000|__cudaLaunchKernel_v13000|__cudaLaunchKernel_ptsz_v13000|cudaMemsetAsync_ptsz_v7000"
calls="$calls|cudaStreamSynchronize_ptsz_v7000"
calls="$calls|cudaGetErrorString_v3020|cudaMemcpyPeer_v4000|cudaMemcpyPeerAsync_v4000|cudaLaunchKernel_ptsz_v7000"
calls="$calls|cudaMemcpy_ptds_v7000|cudaMemcpyAsync_ptsz_v7000|cudaMemset_ptds_v7000"
calls="$calls|cudaGraphExecDestroy_v10000|cudaGraphDestroy_v10000|cudaProfilerStart_v4000|cudaProfilerStop_v4000"
{
    cat "$work/raw.rs"
    sed -nE "s/^ *(CUPTI_RUNTIME_TRACE_CBID_($calls)) *= *([0-9]+),.*/pub const \1: u32 = \3;/p" \
        "$cache/$declared/cupti_runtime_cbid.h"
    driver_calls='cuCtxGetDevice|cuCtxGetCurrent|cuDevicePrimaryCtxGetState|cuKernelGetAttribute|cuKernelGetName'
    driver_calls="$driver_calls|cuDriverGetVersion|cuDeviceGet|cuCtxGetLimit|cuGetErrorString|cuGetProcAddress|cuGetProcAddress_v2"
    sed -nE "s/^ *(CUPTI_DRIVER_TRACE_CBID_($driver_calls)) *= *([0-9]+),.*/pub const \1: u32 = \3;/p" \
        "$cache/$declared/cupti_driver_cbid.h"
} | rustfmt --edition 2024 --config newline_style=Unix >"$work/bindings.rs"
# shellcheck disable=SC2086
python3 scripts/bindgen/offsets.py $includes >"$work/offsets.txt"

if [ "${1:-}" = --check ]; then
    diff -u "$out/src/bindings.rs" "$work/bindings.rs"
    diff -u "$out/tests/offsets.txt" "$work/offsets.txt"
    echo "declarations and offsets are those of CUDA $versions"
else
    cp "$work/bindings.rs" "$out/src/bindings.rs"
    cp "$work/offsets.txt" "$out/tests/offsets.txt"
    wc -l "$out/src/bindings.rs" "$out/tests/offsets.txt"
fi
