//! A function at an address, with its source line.

/// One function at an address. An address has several if functions were inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedFrame {
    /// Demangled name; empty if unknown.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Source line; 0 if unknown.
    pub line: u32,
}
