//! Kernels in the code that Inductor generated: the payload of `inductor_output_code`.

use super::graph_break::short;
use rustc_hash::FxHashSet;

/// In what a kernel is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelLanguage {
    /// A Triton kernel.
    Triton,
    /// A C++ kernel for a CPU.
    Cpp,
    /// Generated for another backend (CUTLASS, Halide, Pallas, Metal …).
    Other,
    /// Not generated: a call of a library or of an ATen operator.
    Extern,
}

impl KernelLanguage {
    /// As reports name it.
    pub fn word(self) -> &'static str {
        match self {
            KernelLanguage::Triton => "triton",
            KernelLanguage::Cpp => "cpp",
            KernelLanguage::Other => "other",
            KernelLanguage::Extern => "extern",
        }
    }
}

/// A kernel that a compiled graph has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedKernel {
    /// Its name: that of a Triton kernel on the device.
    pub name: String,
    /// Its language.
    pub language: KernelLanguage,
    /// Lines of the user's source that it comes from, `FILE:LINE`, where the code names them.
    pub sources: Vec<String>,
    /// Operators that it stands for, as the code's comment lists them.
    pub operators: Vec<String>,
}

/// Most kernels of one graph: code that has more is not read.
const MOST_KERNELS: usize = 20_000;
/// Most lines of source of one kernel, and most operators.
const MOST_SOURCES: usize = 64;
const MOST_OPERATORS: usize = 256;

/// The kernels of a graph's code.
#[derive(Debug, Default)]
pub(super) struct FoundKernels {
    pub kernels: Vec<GeneratedKernel>,
    /// Kernels beyond the most.
    pub kernels_left_out: u64,
    /// Lines of source and operators beyond the most.
    pub parts_left_out: u64,
}

/// Finds kernels: `NAME = async_compile.LANGUAGE(…)` at the beginning of a line, with the comments
/// before them, and different calls of `extern_kernels.…` and `torch.ops.…`.
pub(super) fn find_kernels(code: &str) -> FoundKernels {
    let mut found = FoundKernels::default();
    let (mut externs, mut known) = (Vec::new(), FxHashSet::default());
    let mut comments = Comments::default();
    for line in code.lines() {
        let is_beyond = found.kernels.len() + externs.len() >= MOST_KERNELS;
        if let Some(comment) = line.trim_start().strip_prefix('#') {
            comments.read(comment.trim());
        } else if let Some((name, language)) = definition(line) {
            let Comments { sources, operators, left_out } = std::mem::take(&mut comments);
            if is_beyond {
                found.kernels_left_out += 1;
                continue;
            }
            found.parts_left_out += left_out;
            found.kernels.push(GeneratedKernel { name: short(name), language, sources, operators });
        } else if let Some(callee) = external(line).filter(|callee| !known.contains(callee)) {
            if is_beyond {
                found.kernels_left_out += 1;
                continue;
            }
            known.insert(callee);
            externs.push(callee);
        }
        if line.starts_with("class ") || line.starts_with("def ") {
            // Comments of calls repeat those of definitions.
            comments = Comments::default();
        }
    }
    found.kernels.extend(externs.into_iter().map(|callee: &str| GeneratedKernel {
        name: short(callee),
        language: KernelLanguage::Extern,
        sources: Vec::new(),
        operators: Vec::new(),
    }));
    found
}

/// `cpp_fused_add_0 = async_compile.cpp_pybinding(…`.
fn definition(line: &str) -> Option<(&str, KernelLanguage)> {
    let (name, rest) = line.split_once(" = async_compile.")?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let language = rest.split('(').next()?;
    let language = match language {
        "triton" | "multi_kernel" => KernelLanguage::Triton,
        _ if language.starts_with("cpp") => KernelLanguage::Cpp,
        _ => KernelLanguage::Other,
    };
    is_name.then_some((name, language))
}

/// A call of a library in the code's own body.
fn external(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let text = text.split_once(" = ").map_or(text, |(_, right)| right);
    let callee = &text[..text.find('(')?];
    let is_external = callee.starts_with("extern_kernels.") || callee.starts_with("torch.ops.");
    // Checks, and memory that the code gives back, are no kernels.
    (is_external && line.starts_with(' ') && !callee.contains("inductor.")).then_some(callee)
}

/// What the comments before a kernel have.
#[derive(Debug, Default)]
struct Comments {
    sources: Vec<String>,
    operators: Vec<String>,
    /// Of both, beyond the most.
    left_out: u64,
}

impl Comments {
    /// `Source Nodes: [y], Original ATen: [aten.add]`, `File: /job.py:15 in f, code: …`, or in newer versions
    /// `Topologically Sorted Source Nodes: [y], Original ATen: [aten.add]`.
    fn read(&mut self, text: &str) {
        if let Some((_, list)) = text.split_once("Original ATen: [") {
            let list = list.split(']').next().unwrap_or(list);
            let mut names = list.split(", ").filter(|name| !name.is_empty());
            let operators = names.by_ref().take(MOST_OPERATORS).map(short).collect();
            let left_out = names.count() as u64;
            *self = Comments { sources: Vec::new(), operators, left_out };
        } else if let Some(place) = text.strip_prefix("File: ") {
            let place = place.split(", code:").next().unwrap_or(place);
            let place = short(place.split(" in ").next().unwrap_or(place));
            match self.sources.contains(&place) {
                true => {}
                false if self.sources.len() < MOST_SOURCES => self.sources.push(place),
                false => self.left_out += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_and_external_kernels_are_apart() {
        let code = "async_compile = AsyncCompile()\n\
            # kernel path: /tmp/x.py\n\
            # Topologically Sorted Source Nodes: [y], Original ATen: [aten.add, aten.relu]\n\
            # Source node to ATen node mapping:\n\
            triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''\n\
            import triton\n''', device_str='cuda')\n\
            cpp_fused_1 = async_compile.cpp_pybinding(['const float*'], r'''\n''')\n\
            def call(args):\n    extern_kernels.mm(a, b, out=buf0)\n    extern_kernels.mm(c, d, out=buf1)\n    \
            buf2 = torch.ops.aten.sort.stable(buf1)\n";
        let found = find_kernels(code).kernels;
        let names: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.language)).collect();
        assert_eq!(
            names,
            [
                ("triton_poi_fused_add_0", KernelLanguage::Triton),
                ("cpp_fused_1", KernelLanguage::Cpp),
                ("extern_kernels.mm", KernelLanguage::Extern),
                ("torch.ops.aten.sort.stable", KernelLanguage::Extern),
            ]
        );
        assert_eq!(found[0].operators, ["aten.add", "aten.relu"]);
    }

    #[test]
    fn what_is_beyond_the_most_is_counted() {
        let definition = "a = async_compile.triton(\n";
        let found = find_kernels(&definition.repeat(MOST_KERNELS + 3));
        assert_eq!((found.kernels.len(), found.kernels_left_out), (MOST_KERNELS, 3));
        let operators = "aten.x, ".repeat(MOST_OPERATORS + 5);
        let files: String =
            (0..MOST_SOURCES + 2).map(|at| format!("# File: a.py:{at} in f\n")).collect();
        let found = find_kernels(&format!("# Original ATen: [{operators}]\n{files}{definition}"));
        assert_eq!((found.kernels.len(), found.parts_left_out), (1, 7));
    }
}
