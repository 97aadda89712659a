//! Finds the kernels in code that Inductor generated, which is the payload of the event
//! `inductor_output_code`.

use super::nodes::{NodeLines, file_comment};
use super::stacks::KernelLines;
use super::texts::short;
use rustc_hash::FxHashMap;

/// The language that a kernel is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelLanguage {
    /// A Triton kernel.
    Triton,
    /// A C++ kernel for a CPU.
    Cpp,
    /// A kernel that was generated for another backend (CUTLASS, Halide, Pallas, Metal …).
    Other,
    /// A call of a library or of an ATen operator, for which no kernel is generated.
    Extern,
}

impl KernelLanguage {
    /// Returns the word that reports use.
    pub fn word(self) -> &'static str {
        match self {
            KernelLanguage::Triton => "triton",
            KernelLanguage::Cpp => "cpp",
            KernelLanguage::Other => "other",
            KernelLanguage::Extern => "extern",
        }
    }
}

/// A kernel of a compiled graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedKernel {
    /// The kernel's name; for a Triton kernel, its name on the device.
    pub name: String,
    /// The kernel's language.
    pub language: KernelLanguage,
    /// Lines of the user's source that the kernel comes from, as `FILE:LINE`; empty if the code
    /// doesn't name them.
    pub sources: Vec<String>,
    /// Operators that the kernel computes, as the code's comment lists them.
    pub operators: Vec<String>,
}

/// Maximum number of kernels of one graph; further ones are left out.
const MAX_KERNELS: usize = 20_000;
/// Maximum number of source lines per kernel; `MAX_OPERATORS` is the maximum number of operators.
const MAX_SOURCES: usize = 64;
const MAX_OPERATORS: usize = 256;

/// The kernels that were found in a graph's code.
#[derive(Debug, Default)]
pub(super) struct FoundKernels {
    pub kernels: Vec<GeneratedKernel>,
    /// Number of kernels beyond the maximum.
    pub kernels_left_out: u64,
    /// Number of source lines and operators beyond their maximums.
    pub parts_left_out: u64,
}

/// The source lines of the nodes that comments name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GraphLines<'a> {
    /// Lines of the graph that Dynamo traced. It contains only the forward pass.
    pub traced: Option<&'a NodeLines>,
    /// Lines of the graph that the code was generated from, which contains ATen operators.
    pub lowered: Option<&'a NodeLines>,
}

/// Finds the kernels in generated code. A kernel is a line that begins with
/// `NAME = async_compile.LANGUAGE(…)`, with the comments before it. Each different call of
/// `extern_kernels.…` or `torch.ops.…` counts as a kernel too.
pub(super) fn find_kernels(code: &str, lines: GraphLines<'_>) -> FoundKernels {
    let mut found = FoundKernels::default();
    let mut externs: Vec<(&str, Comments)> = Vec::new();
    let mut known: FxHashMap<&str, usize> = FxHashMap::default();
    let mut comments = Comments::default();
    for line in code.lines() {
        if let Some(comment) = line.trim_start().strip_prefix('#') {
            comments.read(comment.trim(), lines);
            continue;
        }
        // Comments belong to the line that follows them.
        let comments = std::mem::take(&mut comments);
        let is_beyond = found.kernels.len() + externs.len() >= MAX_KERNELS;
        if let Some((name, language)) = definition(line) {
            if is_beyond {
                found.kernels_left_out += 1;
                continue;
            }
            found.parts_left_out += comments.left_out;
            found.kernels.push(comments.of(name, language));
        } else if let Some(callee) = external(line) {
            match known.get(callee) {
                Some(&at) => externs[at].1.add(comments),
                None if is_beyond => found.kernels_left_out += 1,
                None => {
                    known.insert(callee, externs.len());
                    externs.push((callee, comments));
                }
            }
        }
    }
    for (callee, comments) in externs {
        found.parts_left_out += comments.left_out;
        found.kernels.push(comments.of(callee, KernelLanguage::Extern));
    }
    found
}

/// Parses a definition such as `cpp_fused_add_0 = async_compile.cpp_pybinding(…`; `None` for any
/// other line.
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

/// Returns the function if a line in the body of the code calls a library.
fn external(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let text = text.split_once(" = ").map_or(text, |(_, right)| right);
    let callee = &text[..text.find('(')?];
    let is_external = callee.starts_with("extern_kernels.") || callee.starts_with("torch.ops.");
    // Checks, and calls that free memory, aren't kernels.
    (is_external && line.starts_with(' ') && !callee.contains("inductor.")).then_some(callee)
}

/// The information from the comments before a kernel.
#[derive(Debug, Default)]
struct Comments {
    sources: Vec<String>,
    /// Lines of nodes of the traced graph. They are used only if no other comment has a line.
    of_traced: Vec<String>,
    operators: Vec<String>,
    /// Number of operators and sources beyond their maximums.
    left_out: u64,
}

impl Comments {
    /// Reads a comment: `Source Nodes: [y], Original ATen: [aten.add]`, or
    /// `File: /job.py:15 in f, code: …`. Newer versions write
    /// `Topologically Sorted Source Nodes: [y], Original ATen: [aten.add]`, and then comments with
    /// the nodes of the graph itself: `y => add`, and `%add : Tensor "f32[4]" = call_function[…`.
    fn read(&mut self, text: &str, lines: GraphLines<'_>) {
        if let Some((before, list)) = text.split_once("Original ATen: [") {
            *self = Comments::default();
            listed(list).for_each(|name| self.operator(short(name)));
            let nodes = before.split_once("Source Nodes: [").map_or("", |(_, nodes)| nodes);
            if let Some(traced) = lines.traced {
                let places = listed(nodes).filter_map(|node| traced.place(node));
                places.for_each(|at| self.add_line(at, |these| &mut these.of_traced));
            }
        } else if let Some(place) = file_comment(text) {
            self.source(place);
        } else if let Some(lowered) = lines.lowered {
            nodes_of(text).filter_map(|node| lowered.place(node)).for_each(|at| self.source(at));
        }
    }

    fn operator(&mut self, name: String) {
        match self.operators.contains(&name) {
            true => {}
            false if self.operators.len() < MAX_OPERATORS => self.operators.push(name),
            false => self.left_out += 1,
        }
    }

    fn source(&mut self, place: &str) {
        self.add_line(place, |these| &mut these.sources);
    }

    fn add_line(&mut self, place: &str, of: impl Fn(&mut Comments) -> &mut Vec<String>) {
        self.left_out += u64::from(!add_source(of(self), short(place)));
    }

    /// Takes the lines of the user's source.
    fn lines(&mut self) -> Vec<String> {
        let is_known = !self.sources.is_empty();
        std::mem::take(if is_known { &mut self.sources } else { &mut self.of_traced })
    }

    /// Adds the information about another call of the same function.
    fn add(&mut self, mut other: Comments) {
        self.sources = self.lines();
        other.lines().iter().for_each(|place| self.source(place));
        other.operators.into_iter().for_each(|name| self.operator(name));
        self.left_out += other.left_out;
    }

    fn of(mut self, name: &str, language: KernelLanguage) -> GeneratedKernel {
        let sources = self.lines();
        GeneratedKernel { name: short(name), language, sources, operators: self.operators }
    }
}

impl GeneratedKernel {
    /// Adds lines that PyTorch lists by the kernel's name. Returns how many were left out.
    pub(super) fn add_lines(&mut self, lines: &KernelLines) -> u64 {
        let lines = lines.places.iter();
        lines.map(|place| u64::from(!add_source(&mut self.sources, place.clone()))).sum()
    }
}

/// Adds a line unless it is known. Returns false if there are too many.
fn add_source(sources: &mut Vec<String>, place: String) -> bool {
    let is_known = sources.contains(&place);
    let fits = is_known || sources.len() < MAX_SOURCES;
    if fits && !is_known {
        sources.push(place);
    }
    fits
}

/// Returns the nodes of a graph that a comment names. Inputs are left out, because they belong to
/// no kernel.
fn nodes_of(text: &str) -> impl Iterator<Item = &str> {
    let called = text.strip_prefix('%').filter(|_| text.contains(" = call_"));
    let called = called.and_then(|text| text.split(' ').next());
    let mapped = text.split_once(" => ").map_or("", |(_, nodes)| nodes);
    called.into_iter().chain(mapped.split(", ").filter(|node| !node.is_empty()))
}

/// Returns the entries of a list, up to its closing bracket.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(']').next().unwrap_or(text).split(", ").filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_and_external_kernels_are_told_apart() {
        let code = "async_compile = AsyncCompile()\n\
            # kernel path: /tmp/x.py\n\
            # Topologically Sorted Source Nodes: [y], Original ATen: [aten.add, aten.relu]\n\
            # Source node to ATen node mapping:\n\
            triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''\n\
            import triton\n''', device_str='cuda')\n\
            cpp_fused_1 = async_compile.cpp_pybinding(['const float*'], r'''\n''')\n\
            def call(args):\n    extern_kernels.mm(a, b, out=buf0)\n    extern_kernels.mm(c, d, out=buf1)\n    \
            buf2 = torch.ops.aten.sort.stable(buf1)\n";
        let found = find_kernels(code, GraphLines::default()).kernels;
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
        assert!(found[0].sources.is_empty(), "no graph has the nodes");
    }

    #[test]
    fn kernels_have_the_lines_of_their_nodes() {
        let traced = "# File: a.py:3 in f, code: y = x + 1\ny = x + 1\n\
                      # File: a.py:5 in f, code: z = g(y)\nlinear = torch.nn.functional.linear(y)\nz = torch.relu(linear)\n";
        let code = "# kernel path: /tmp/x.py\n\
            # Topologically Sorted Source Nodes: [y, z, unknown], Original ATen: [aten.add, aten.relu]\n\
            # Source node to ATen node mapping:\n#   y => add\n#   z => relu\n\
            triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''\n# a comment\n''')\n\
            def call(args):\n    \
            # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]\n    \
            extern_kernels.addmm(a, b, out=buf0)\n    triton_poi_fused_add_relu_0.run(buf0)\n    \
            extern_kernels.mm(a, b, out=buf0)\n";
        let traced = NodeLines::of(traced, 1 << 20);
        let lines = GraphLines { traced: traced.as_ref(), lowered: None };
        let found = find_kernels(code, lines).kernels;
        let found: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.sources.join(" "))).collect();
        let expected = [
            ("triton_poi_fused_add_relu_0", "a.py:3 a.py:5"),
            ("extern_kernels.addmm", "a.py:5"),
            ("extern_kernels.mm", ""),
        ];
        assert_eq!(found, expected.map(|(name, lines)| (name, lines.to_owned())));
    }

    #[test]
    fn kernels_of_backward_graphs_have_the_lines_of_their_own_graph() {
        let traced =
            NodeLines::of("# File: a.py:3 in f, code: y = x + 1\nsum_1 = x + 1\n", 1 << 20);
        let lowered = "# File: a.py:7 in f, code: z = y * 2\n\
                       mul: \"f32[4]\" = torch.ops.aten.mul.Tensor(tangents_1, 2)\n\
                       # No stacktrace found for following nodes\nfull = torch.ops.aten.full.default([4], 0)\n\
                       # File: a.py:8 in f, code: y.sum()\nsum_1 = torch.ops.aten.sum.default(mul)\n";
        let lowered = NodeLines::of(lowered, 1 << 20);
        let code = "# Topologically Sorted Source Nodes: [sum_1, full], Original ATen: [aten.mul, aten.sum]\n\
            # Source node to ATen node mapping:\n#   sum_1 => sum_1\n# Graph fragment:\n\
            #   %tangents_1 : Tensor \"f32[4]\" = PlaceHolder[target=tangents_1]\n\
            #   %mul : Tensor \"f32[4]\"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor]\n\
            triton_per_fused_mul_sum_0 = async_compile.triton('x', '''\n\
            # Topologically Sorted Source Nodes: [full], Original ATen: [aten.full]\n\
            # Source node to ATen node mapping:\n#   full => full\n\
            triton_poi_fused_full_1 = async_compile.triton('x', '''\n";
        let lines = GraphLines { traced: traced.as_ref(), lowered: lowered.as_ref() };
        let found = find_kernels(code, lines).kernels;
        assert_eq!(found[0].sources, ["a.py:8", "a.py:7"]);
        // The kernel doesn't get the line before it, nor the line of a node with the same name in
        // another graph.
        assert!(found[1].sources.is_empty(), "{found:?}");
    }

    #[test]
    fn kernels_and_parts_beyond_the_maximum_are_counted() {
        let definition = "a = async_compile.triton(\n";
        let found = find_kernels(&definition.repeat(MAX_KERNELS + 3), GraphLines::default());
        assert_eq!((found.kernels.len(), found.kernels_left_out), (MAX_KERNELS, 3));
        let operators: String = (0..MAX_OPERATORS + 5).map(|at| format!("aten.x{at}, ")).collect();
        let files: String =
            (0..MAX_SOURCES + 2).map(|at| format!("# File: a.py:{at} in f\n")).collect();
        let found = find_kernels(
            &format!("# Original ATen: [{operators}]\n{files}{definition}"),
            GraphLines::default(),
        );
        assert_eq!((found.kernels.len(), found.parts_left_out), (1, 7));
    }
}
