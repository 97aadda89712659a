//! Classifies device work by the rules of Holistic Trace Analysis.

use tprof_facts::Class;

/// Returns the class of any row on a stream, as Holistic Trace Analysis 0.5.0 derives it from the
/// row's name. By these rules, a kernel with `Memcpy` or `Sync` in its name has no class.
pub fn hta_class(name: &str) -> Class {
    if name.strip_prefix("nccl").is_some_and(|rest| rest.contains("Kernel")) {
        Class::Communication
    } else if ["Memcpy", "Memset", "dma"].iter().any(|prefix| name.starts_with(prefix)) {
        Class::Memory
    } else if name.contains("Memcpy") || name.contains("Sync") {
        Class::Other
    } else {
        Class::Compute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hta_reads_only_names() {
        let of = [
            ("ncclKernel_AllReduce", Class::Communication),
            ("ncclAllReduce", Class::Compute),
            ("Memcpy DtoH (Device -> Pinned)", Class::Memory),
            ("dma_engine", Class::Memory),
            ("CopyMemcpy", Class::Other),
            ("Stream Sync", Class::Other),
            ("Stream Wait Event", Class::Compute),
            ("aMemset", Class::Compute),
        ];
        for (name, class) in of {
            assert_eq!(hta_class(name), class, "{name}");
        }
    }
}
