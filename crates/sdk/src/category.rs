//! What a span does, for reports that group by it.

/// What a span does. It is among the arguments of the span, as `category`, and decides the cause of the
/// time in it: a sleep in a span that loads data is a wait for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// Computes.
    Compute,
    /// Allocates, frees or copies memory.
    Memory,
    /// Reads or prepares input.
    DataLoad,
    /// Waits for another thread, process or device.
    Sync,
    /// Exchanges data with other processes.
    Communication,
    /// Compiles.
    Compile,
    /// Reads or writes files or sockets.
    Io,
    /// What the program says.
    Custom(&'static str),
}

impl Category {
    /// As reports have it.
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
