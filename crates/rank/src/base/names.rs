//! Interns names of kernels, so that ranks share them, and shortens them to fit on a line.

use std::sync::{Arc, Mutex};

use rustc_hash::FxHashSet;

/// A set of strings that threads fill together. It stores each name once: a kernel's name is long,
/// and a thousand ranks run the same kernels.
#[derive(Debug, Default)]
pub struct Names(Mutex<FxHashSet<Arc<str>>>);

impl Names {
    /// Returns the shared copy of a string.
    pub fn get(&self, text: &str) -> Arc<str> {
        // A poisoned lock means that a worker panicked. The scope of the threads passes the panic
        // on, so the result does not matter.
        let Ok(mut names) = self.0.lock() else { return Arc::from(text) };
        if let Some(name) = names.get(text) {
            return Arc::clone(name);
        }
        let name: Arc<str> = Arc::from(text);
        names.insert(Arc::clone(&name));
        name
    }
}

/// Qualifiers that are left out of short names, since nearly all kernels have one of them.
const QUALIFIERS: [&str; 4] = ["at::native::", "(anonymous namespace)::", "at::", "c10::"];

/// Returns a kernel's name for people, without `void`, parameters, and namespaces that most kernels
/// share. Template arguments stay: they are often the only difference.
pub fn short(name: &str) -> String {
    if ["Memcpy", "Memset"].iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    let mut short = name.strip_prefix("void ").unwrap_or(name).to_owned();
    for qualifier in QUALIFIERS {
        short = short.replace(qualifier, "");
    }
    let mut depth = 0_i32;
    let parameters = short.char_indices().find(|(_, letter)| {
        depth += match letter {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        *letter == '(' && depth <= 0
    });
    match parameters {
        Some((at, _)) if at > 0 => short[..at].trim_end().to_owned(),
        _ => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_share_one_allocation() {
        let names = Names::default();
        assert!(Arc::ptr_eq(&names.get("gemm"), &names.get("gemm")));
    }

    #[test]
    fn short_names_keep_what_distinguishes_kernels() {
        let of = [
            ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
            (
                "void at::native::fill<4, at::native::Fill<float>>(int, float)",
                "fill<4, Fill<float>>",
            ),
            ("ncclKernel_SendRecv(ncclDevComm*, ncclWork*)", "ncclKernel_SendRecv"),
            (
                "void at::native::(anonymous namespace)::cat<float, (at::X)1>(at::Y)",
                "cat<float, (X)1>",
            ),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("(weird)", "(weird)"),
        ];
        for (name, shorter) in of {
            assert_eq!(short(name), shorter);
        }
    }
}
