//! Python's imports on a stack: which module is being imported.

use tprof_facts::labels::base_name;

use crate::rank::samples::{Func, Layer};

/// The outermost module that is being imported, of a stack's functions, innermost first: the
/// package, where it is part of one. `None` while it is searched, and outside of imports.
pub(super) fn module<'a>(functions: impl DoubleEndedIterator<Item = &'a Func>) -> Option<String> {
    let python = functions.rev().filter(|func| func.layer == Layer::Python);
    let mut after = python.skip_while(|func| !func.is_import());
    let file = &after.find(|func| !func.is_import())?.file;
    let path = file.strip_suffix(".py").unwrap_or(file);
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    let inside = path.split_once("-packages/").map(|(_, rest)| rest);
    Some(match inside {
        Some(rest) => rest.split('/').next().unwrap_or(rest).to_owned(),
        None => base_name(path).to_owned(),
    })
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
    }
}
