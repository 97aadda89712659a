//! Names of files in a session directory, besides that of the socket.

/// Names of the socket at other times: before it listens, and ([`LEAVING`]) while the collector
/// serves the last processes that had found it. Neither is longer than the socket's usual name,
/// because the length of a socket's path is limited.
pub const UNREADY: &str = "new";
pub const LEAVING: &str = "end";
/// The file that the collector in charge has locked.
pub const LOCK: &str = "lock";
/// A file in a run directory, which a rank locks while it prepares the directory. The name is
/// hidden, because the directory may be a user's own.
pub const RUN_LOCK: &str = ".tprof-lock";
/// The file that names the process to which the directory belongs.
pub const OWNER: &str = "owner";
