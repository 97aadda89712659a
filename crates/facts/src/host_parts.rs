//! Has the displayed names of the parts of host time, which reports, charts and pages share.

/// The keys of the parts in JSON, with their displayed names. They are in the order of bars: time
/// on a core first, then waits. `running` and `waiting` are the rest of a step's time, on a core
/// and off a core.
pub const HOST_PARTS: [(&str, &str); 18] = [
    ("running", "on a core"),
    ("python", "running Python"),
    ("native", "running native code"),
    ("allocator", "malloc and free"),
    ("page_fault", "page faults"),
    ("gc", "garbage collection"),
    ("data", "waiting for data"),
    ("gil", "waiting for the GIL"),
    ("lock", "waiting for a lock"),
    ("file_io", "file or pipe I/O"),
    ("socket", "socket"),
    ("collective", "collective"),
    ("device", "waiting for a device"),
    ("no_core", "ready, no free core"),
    ("tprof", "waiting for tprof"),
    ("other", "other waits"),
    ("waiting", "waiting"),
    ("unknown", "unknown"),
];

/// Returns the displayed name of the part with this key, or the key itself if there is no such
/// part.
pub fn name(key: &'static str) -> &'static str {
    HOST_PARTS.iter().find(|(known, _)| *known == key).map_or(key, |(_, name)| name)
}
