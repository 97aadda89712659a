//! Lists the columns of the tables of memory snapshots.

use super::field::columns_of;
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;

columns_of! {
    AllocatorSegment in ALLOCATOR_SEGMENTS;
    1 plain process,
    2 plain device,
    3 steady segment,
    4 steady address,
    5 plain bytes,
    6 plain stream,
    7 plain kind,
    8 plain pool_major,
    9 plain pool_minor,
    10 plain expandable,
    11 plain stack,
    12 plain args,
}

columns_of! {
    AllocatorBlock in ALLOCATOR_BLOCKS;
    1 plain process,
    2 steady segment,
    3 steady address,
    4 plain bytes,
    5 plain requested_bytes,
    6 plain state,
    7 plain stack,
    8 plain args,
}

columns_of! {
    AllocatorEvent in ALLOCATOR_EVENTS;
    1 steady order,
    2 steady time_ns,
    3 plain process,
    4 plain device,
    5 plain action,
    6 steady address,
    7 plain bytes,
    8 plain stream,
    9 plain device_free_bytes,
    10 plain stack,
    11 plain args,
}
