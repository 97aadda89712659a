//! Recognises calls of PyTorch's modules among the ranges of a run, by the ranges' names.
//!
//! `--modules` names a range `nn.Module: Net.layers.3 (Linear)`: the module's path from the
//! outermost module, and its class. torch.profiler names a Python function `nn.Module: Linear_3`:
//! the module's class and a number (`with_modules`, `with_stack`).

/// Prefix of the names of ranges around calls of modules.
pub const MODULE_PREFIX: &str = "nn.Module: ";

/// A module as its range's name describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleName<'a> {
    /// Path of the module. For a name from torch.profiler, its class and number.
    pub path: &'a str,
    /// Class of the module.
    pub class: &'a str,
}

impl<'a> ModuleName<'a> {
    /// Parses a range's name; `None` if it isn't that of a module.
    pub fn of(name: &'a str) -> Option<ModuleName<'a>> {
        let text = name.strip_prefix(MODULE_PREFIX)?;
        if let Some((path, class)) = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("))
        {
            return Some(ModuleName { path, class });
        }
        let class = match text.rsplit_once('_') {
            Some((class, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => class,
            _ => text,
        };
        Some(ModuleName { path: text, class })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_names_have_path_and_class() {
        let parts = |name| ModuleName::of(name).map(|name| (name.path, name.class));
        let own = parts("nn.Module: Net#2.layers.3 (Linear)");
        assert_eq!(own, Some(("Net#2.layers.3", "Linear")));
        assert_eq!(parts("nn.Module: My_Net_12"), Some(("My_Net_12", "My_Net")));
        assert_eq!(parts("nn.Module: Net"), Some(("Net", "Net")));
        assert_eq!(parts("forward"), None);
    }
}
