//! Interprets the stack of the launching thread while its device has nothing to do.

use tprof_rank::samples::{Func, FunctionTable, Layer, Part, Role, Stack};
use tprof_trace::model::ThreadState;

use super::cause::IdleCause;
use crate::host::{OtherCause, Place};

/// The activity of a thread in a sample or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostCode {
    /// The thread kept the device waiting, for this cause.
    Cause(IdleCause),
    /// The thread ran code of the device's libraries or of a framework's operators.
    Operators,
    /// The thread waited for another thread to do something.
    OtherThread,
    /// The thread made no call and has no sample: it ran its own code, or waited for a thread that
    /// ran code.
    Quiet,
}

/// Parts of the file paths of Python compilers for devices.
const COMPILERS: [&str; 7] = [
    "torch/_inductor/",
    "torch/_dynamo/",
    "torch/_functorch/",
    "triton/compiler/",
    "triton/backends/",
    "jax/_src/compiler.py",
    "numba/core/",
];
/// Python files of these compilers that also run on each call of code that is already compiled, so
/// they don't show that code is being compiled.
const WRAPPERS: [&str; 4] = ["eval_frame.py", "runtime_wrappers.py", "utils.py", "output_code.py"];
/// Parts of the names of native functions that compile.
const COMPILING: [&str; 6] =
    ["nvrtc", "nvPTXCompiler", "llvm::", "mlir::", "xla::gpu::GpuCompiler", "cuModuleLoad"];
/// Prefixes of the names of modules that launch work. Code that runs in such a module between
/// launches counts as time of the operators themselves.
const OPERATORS: [&str; 13] = [
    "libtorch",
    "libc10",
    "libcuda",
    "libcudart",
    "libcupti",
    "libcublas",
    "libcudnn",
    "libnccl",
    "libnvrtc",
    "libtprof",
    "xla_extension",
    "_jax",
    "xla_cuda",
];

impl HostCode {
    /// Interprets a part of a thread's time that has this stack.
    pub fn of(part: Part, state: ThreadState, stack: &Stack, names: &FunctionTable) -> HostCode {
        let all = || stack.functions.iter().map(|id| names.get(*id));
        // A stack that imports a compiler contains the compiler's functions, but compiles nothing.
        if all().any(compiles) && !all().any(Func::is_import) {
            return HostCode::Cause(IdleCause::Compile);
        }
        let cause = match part {
            Part::Gil => Some(IdleCause::Gil),
            Part::Gc => Some(IdleCause::Gc),
            Part::Collective => Some(IdleCause::Collective),
            Part::Device => Some(IdleCause::Sync),
            _ => None,
        };
        if let Some(cause) = cause {
            return HostCode::Cause(cause);
        }
        let place = Place::of(part, state, stack, names);
        if place.saves {
            return HostCode::Cause(IdleCause::Checkpoint);
        }
        let loads =
            |func: &Func| func.layer == Layer::Python && Role::of(&func.name, &func.file).is_some();
        if part == Part::Data || all().any(loads) {
            return HostCode::Cause(IdleCause::Data);
        }
        match part {
            Part::Lock => HostCode::Cause(IdleCause::Lock),
            Part::Other if matches!(place.cause, OtherCause::Thread | OtherCause::Work) => {
                HostCode::OtherThread
            }
            Part::Unknown => HostCode::OtherThread,
            Part::Python => HostCode::Cause(IdleCause::Python),
            _ => {
                let inner = all().find(|func| func.layer != Layer::Kernel && !func.is_system());
                let is_operator = inner.is_some_and(|func| {
                    OPERATORS.iter().any(|start| func.module.starts_with(start))
                });
                match is_operator {
                    true => HostCode::Operators,
                    false => HostCode::Cause(IdleCause::Python),
                }
            }
        }
    }
}

/// Whether a function compiles code for a device.
fn compiles(func: &Func) -> bool {
    match func.layer {
        Layer::Python => {
            COMPILERS.iter().any(|part| func.file.contains(part))
                && !WRAPPERS.iter().any(|end| func.file.ends_with(end))
        }
        Layer::Native => COMPILING.iter().any(|part| func.name.contains(part)),
        Layer::Kernel => false,
    }
}
