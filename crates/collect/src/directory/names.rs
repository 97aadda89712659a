//! Names in a session directory, besides the socket's own.

/// Name of the socket before it listens. [`LEAVING`] is its name while the processes that had found
/// it are served. Neither is longer than the socket's own name, so that these paths fit wherever
/// that does.
pub const UNREADY: &str = "new";
pub const LEAVING: &str = "end";
/// The file that the collector in charge locks.
pub const LOCK: &str = "lock";
/// A file in a run directory, which may be a user's. The rank that decides on the run locks it.
pub const RUN_LOCK: &str = ".tprof-lock";
/// The file that names the owner.
pub const OWNER: &str = "owner";
