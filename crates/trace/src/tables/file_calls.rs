//! Lists the columns of the table of calls on files.

use super::field::{columns_of, numbered};
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;

numbered! { FileKind, else Unknown: Unknown, File, Socket, Pipe, Device }
numbered! { FileOperation, else Open: Open, Read, Write, Sync, Map, Connect, Close, Accept, Fault }

columns_of! {
    FileCalls in FILE_CALLS, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain thread,
    5 plain kind,
    6 plain file,
    7 plain operation,
    8 plain calls,
    9 plain failed,
    10 plain bytes,
    11 plain busy_ns,
    12 plain longest_ns,
    13 plain jumps,
    14 plain storage_bytes,
    15 plain stack,
    16 plain file_system,
}
