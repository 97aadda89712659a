//! Categories of spans, by which reports group them.

/// Category of a span. It is recorded as the span's argument `category`, and reports attribute the
/// time in the span by it: a sleep in a span that loads data counts as a wait for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// The span computes.
    Compute,
    /// The span allocates, frees or copies memory.
    Memory,
    /// The span reads or prepares input.
    DataLoad,
    /// The span waits for another thread, process or device.
    Sync,
    /// The span exchanges data with other processes.
    Communication,
    /// The span compiles code.
    Compile,
    /// The span reads or writes files or sockets.
    Io,
    /// A category that the program defines.
    Custom(&'static str),
}

impl Category {
    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Compute => "compute",
            Category::Memory => "memory",
            Category::DataLoad => "data_load",
            Category::Sync => "sync",
            Category::Communication => "communication",
            Category::Compile => "compile",
            Category::Io => "io",
            Category::Custom(name) => name,
        }
    }
}
