//! Names in a session directory, besides the socket's own.

/// The socket before it listens, and while those that had found it are served. No longer than
/// its name, so that their paths fit wherever its own does.
pub const UNREADY: &str = "new";
pub const LEAVING: &str = "end";
/// Locked by the collector in charge.
pub const LOCK: &str = "lock";
/// A file in a run directory, which may be a user's; the rank that decides on the run locks it.
pub const RUN_LOCK: &str = ".tprof-lock";
/// The owner's file.
pub const OWNER: &str = "owner";
