//! Defines the columns of the calls on files, pipes and sockets.

use tprof_facts::files;
use tprof_trace::model::FileCalls;

use crate::column::{Cell, columns};

columns! { pub(crate) FILE_CALLS of FileCalls:
    "start_ns" Int "when the first of the calls began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "time from there to the end of the last" |r, _| Cell::uint(r.duration_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "kind" Text "file, socket, pipe or device; null if unknown" |r, _| files::kind(r.kind).map_or(Cell::Null, Cell::Text);
    "path" Text "path of the file, or the socket's peer; DIRECTORY/*.EXTENSION for files of a directory of which too many were opened; null if unknown" |r, c| c.name(r.file);
    "file_system" Text "type, mount point and source of the file system; null if unknown or not a file's" |r, c| c.name(r.file_system);
    "operation" Text "open, read, write, sync, map, connect, accept, close, or page faults" |r, _| Cell::Text(files::operation(r.operation));
    "calls" Int "how many calls" |r, _| Cell::uint(r.calls);
    "failed" Int "how many of them failed" |r, _| Cell::uint(r.failed);
    "bytes" Int "bytes that they transferred, or mapped" |r, _| Cell::uint(r.bytes);
    "busy_ns" Int "time in the calls, summed" |r, _| Cell::uint(r.busy_ns);
    "longest_ns" Int "time of the longest" |r, _| Cell::uint(r.longest_ns);
    "jumps" Int "calls that began elsewhere in the file than the one before ended" |r, _| Cell::uint(r.jumps);
    "storage_bytes" Int "bytes that the kernel read from storage for them; null if unknown" |r, _| Cell::opt(r.storage_bytes);
    "stack" Int "stack of one of the calls in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
}
