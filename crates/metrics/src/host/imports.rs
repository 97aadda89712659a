//! Finds the module that Python is importing, from a stack.

use tprof_facts::labels::base_name;
use tprof_rank::samples::{Func, Layer};

/// Packages that import a job's own files to run them.
const RUNNERS: [&str; 9] = [
    "pytest",
    "_pytest",
    "pluggy",
    "runpy",
    "unittest",
    "coverage",
    "IPython",
    "accelerate",
    "ipykernel",
];

/// Returns the module whose import takes the time, for a stack's functions, innermost first. It is
/// the package of the outermost module that is being imported, leaving out packages that run the
/// job and the job's own files. If only such modules are being imported, it is the outermost of
/// them. Returns `None` outside of imports and while Python searches for the module.
pub(super) fn module<'a>(functions: impl DoubleEndedIterator<Item = &'a Func>) -> Option<String> {
    let mut outermost = None;
    let mut is_imported = false;
    for func in functions.rev().filter(|func| func.layer == Layer::Python) {
        // The function that the import system calls is the code of the module that is being
        // imported. Functions that this code calls do not belong to the module.
        if func.is_import() || !std::mem::take(&mut is_imported) {
            is_imported |= func.is_import();
            continue;
        }
        let name = name(&func.file);
        // Names like `<shim>` belong to generated code, not to a package.
        if !func.is_own() && !name.starts_with('<') && !RUNNERS.contains(&&*name) {
            return Some(name);
        }
        outermost = outermost.or(Some(name));
    }
    outermost
}

/// Returns a module's package, or the module's own name if it is not part of a package.
fn name(file: &str) -> String {
    let frozen = file.strip_prefix("<frozen ").and_then(|name| name.strip_suffix('>'));
    let path = frozen.or(file.strip_suffix(".py")).unwrap_or(file);
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    match path.split_once("-packages/") {
        Some((_, rest)) => rest.split('/').next().unwrap_or(rest).to_owned(),
        None => base_name(path).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn func(name: &str, file: &str) -> Func {
        Func {
            name: name.into(),
            file: file.into(),
            module: "[python]".into(),
            layer: Layer::Python,
        }
    }

    #[test]
    fn runners_of_a_job_do_not_take_the_time_of_its_imports() {
        let find = func("_find_and_load", "<frozen importlib._bootstrap>");
        let runner = func("exec_module", "/opt/lib/python3.11/site-packages/_pytest/rewrite.py");
        let test = func("<module>", "/home/me/test_e.py");
        let torch = func("<module>", "/opt/lib/python3.11/site-packages/torch/__init__.py");
        let pytest = func("<module>", "/opt/lib/python3.11/site-packages/pytest/__init__.py");
        let stack = [&torch, &find, &test, &runner, &find];
        assert_eq!(module(stack.into_iter()).as_deref(), Some("torch"));
        let site = func("<module>", "<frozen site>");
        assert_eq!(module([&site, &find].into_iter()).as_deref(), Some("site"));
        // While the runner itself is being imported, the time counts for the runner.
        assert_eq!(module([&pytest, &find].into_iter()).as_deref(), Some("pytest"));
    }

    #[test]
    fn the_outermost_module_is_named_by_its_package() {
        let main = func("<module>", "/home/me/train.py");
        let find = func("_find_and_load", "<frozen importlib._bootstrap>");
        let torch = func("<module>", "/opt/lib/python3.11/site-packages/torch/__init__.py");
        let inner = func("<module>", "/opt/lib/python3.11/site-packages/torch/nn/functional.py");
        let stack = [&inner, &find, &torch, &find, &main];
        assert_eq!(module(stack.into_iter()).as_deref(), Some("torch"));
        assert_eq!(module(stack[3..].iter().copied()), None);
        assert_eq!(module([&main].into_iter()), None);
        let own = func("<module>", "/home/me/models.py");
        assert_eq!(module([&own, &find, &main].into_iter()).as_deref(), Some("models"));
        // If an own file imports a package, the package takes the time.
        assert_eq!(
            module([&torch, &find, &own, &find, &main].into_iter()).as_deref(),
            Some("torch")
        );
    }
}
