//! The settings of what is recorded of PyTorch.

use super::setting::{Group, Setting, ValueKind};
use super::values::{self, OPERATOR_DETAILS, name_of};

/// How to record PyTorch operators.
pub static OPERATORS: Setting = Setting {
    name: "operators",
    short: None,
    group: Group::What,
    help: "Record PyTorch operators: names, shapes, off, or auto (names, of only some steps if all would cost too much) [default: auto]",
    kind: ValueKind::Text("MODE", || values::names(&OPERATOR_DETAILS)),
    set: |resolved, given| {
        resolved.config.operators = values::one_of(given, &OPERATOR_DETAILS)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.operators, &OPERATOR_DETAILS).into()),
};

/// Whether to record calls of PyTorch modules by path.
pub static MODULES: Setting = Setting {
    name: "modules",
    short: None,
    group: Group::What,
    help: "Record time per nn.Module (installs a Python start-up hook)",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        resolved.config.modules = values::flag(given)?;
        Ok(())
    },
    show: |resolved| Some(resolved.config.modules.into()),
};

/// Window to request from PyTorch's own profiler.
pub static KINETO: Setting = Setting {
    name: "kineto",
    short: None,
    group: Group::What,
    help: "Also record N steps with torch.profiler: stacks, shapes, steps=N, off [default: off]",
    kind: ValueKind::Optional("LIST", "stacks,shapes"),
    set: |resolved, given| {
        resolved.config.kineto = values::kineto_window(given)?;
        Ok(())
    },
    show: |resolved| Some(values::kineto_text(resolved.config.kineto).into()),
};

/// Whether to keep PyTorch's log of `torch.compile`.
pub static COMPILE: Setting = Setting {
    name: "compile",
    short: None,
    group: Group::What,
    help: "Keep the torch.compile log for `tprof report compile` (up to 256 MiB per process; sets INDUCTOR_PROVENANCE=1)",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        resolved.config.compile = values::flag(given)?;
        Ok(())
    },
    show: |resolved| Some(resolved.config.compile.into()),
};
