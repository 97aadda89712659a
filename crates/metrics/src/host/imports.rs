//! Finds the package that Python is importing, from a stack.

use tprof_facts::labels::base_name;
use tprof_rank::samples::{Func, Layer};

/// Packages that run a job by importing its files.
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

/// Returns the package whose import takes the time, for the functions of a stack, innermost first:
/// the package of the outermost module that is being imported. The job's own files and packages
/// that run the job ([`RUNNERS`]) only count if nothing else is being imported. Returns `None`
/// outside of imports, and while Python still searches for the first module.
pub(super) fn imported_package<'a>(
    functions: impl DoubleEndedIterator<Item = &'a Func>,
) -> Option<String> {
    let mut outermost = None;
    // Whether the function before, which called this one, belongs to the import system.
    let mut is_called_by_import = false;
    for func in functions.rev().filter(|func| func.layer == Layer::Python) {
        // The function that the import system calls is the body of the module that is being
        // imported. Functions that the body calls may be of any module, so they say nothing.
        if func.is_import() || !std::mem::take(&mut is_called_by_import) {
            is_called_by_import |= func.is_import();
            continue;
        }
        let package = package_of(&func.file);
        // Names like `<shim>` belong to generated code, not to a package.
        if !func.is_own() && !package.starts_with('<') && !RUNNERS.contains(&&*package) {
            return Some(package);
        }
        outermost = outermost.or(Some(package));
    }
    outermost
}

/// Returns the package that a file belongs to, by the file's path below `site-packages` or
/// `dist-packages`. For other files, returns the module's own name.
fn package_of(file: &str) -> String {
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
        assert_eq!(imported_package(stack.into_iter()).as_deref(), Some("torch"));
        let site = func("<module>", "<frozen site>");
        assert_eq!(imported_package([&site, &find].into_iter()).as_deref(), Some("site"));
        // While the runner itself is being imported, the time counts for the runner.
        assert_eq!(imported_package([&pytest, &find].into_iter()).as_deref(), Some("pytest"));
    }

    #[test]
    fn the_outermost_module_is_named_by_its_package() {
        let main = func("<module>", "/home/me/train.py");
        let find = func("_find_and_load", "<frozen importlib._bootstrap>");
        let torch = func("<module>", "/opt/lib/python3.11/site-packages/torch/__init__.py");
        let inner = func("<module>", "/opt/lib/python3.11/site-packages/torch/nn/functional.py");
        let stack = [&inner, &find, &torch, &find, &main];
        assert_eq!(imported_package(stack.into_iter()).as_deref(), Some("torch"));
        assert_eq!(imported_package(stack[3..].iter().copied()), None);
        assert_eq!(imported_package([&main].into_iter()), None);
        let own = func("<module>", "/home/me/models.py");
        assert_eq!(imported_package([&own, &find, &main].into_iter()).as_deref(), Some("models"));
        // If an own file imports a package, the package takes the time.
        assert_eq!(
            imported_package([&torch, &find, &own, &find, &main].into_iter()).as_deref(),
            Some("torch")
        );
    }
}
