//! Python's imports on a stack: which module is being imported.

use tprof_facts::labels::base_name;

use crate::rank::samples::{Func, Layer};

/// Packages that import a job's own files, to run them.
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

/// The module whose import takes the time, by a stack's functions, innermost first: the package of
/// the outermost module that is being imported and neither runs the job nor is one of its own
/// files; if there is none, the outermost. `None` while the module is searched for, and outside of
/// imports.
pub(super) fn module<'a>(functions: impl DoubleEndedIterator<Item = &'a Func>) -> Option<String> {
    let mut outermost = None;
    let mut is_imported = false;
    for func in functions.rev().filter(|func| func.layer == Layer::Python) {
        // The import system calls the module's own code; what that calls is not the module.
        if func.is_import() || !std::mem::take(&mut is_imported) {
            is_imported |= func.is_import();
            continue;
        }
        let name = name(&func.file);
        // Code that was made up, as `<shim>`, is no package.
        if !func.is_own() && !name.starts_with('<') && !RUNNERS.contains(&&*name) {
            return Some(name);
        }
        outermost = outermost.or(Some(name));
    }
    outermost
}

/// A module's package, or its own name if it is not part of one.
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
    fn what_runs_a_job_is_not_what_its_import_takes() {
        let find = func("_find_and_load", "<frozen importlib._bootstrap>");
        let runner = func("exec_module", "/opt/lib/python3.11/site-packages/_pytest/rewrite.py");
        let test = func("<module>", "/home/me/test_e.py");
        let torch = func("<module>", "/opt/lib/python3.11/site-packages/torch/__init__.py");
        let pytest = func("<module>", "/opt/lib/python3.11/site-packages/pytest/__init__.py");
        let stack = [&torch, &find, &test, &runner, &find];
        assert_eq!(module(stack.into_iter()).as_deref(), Some("torch"));
        let site = func("<module>", "<frozen site>");
        assert_eq!(module([&site, &find].into_iter()).as_deref(), Some("site"));
        // The time of its own import is its own.
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
        // An own file that imports a package takes that package's time.
        assert_eq!(
            module([&torch, &find, &own, &find, &main].into_iter()).as_deref(),
            Some("torch")
        );
    }
}
