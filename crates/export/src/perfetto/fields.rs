//! Defines the numbers of the protobuf fields that are written, message by message, as in
//! Perfetto's schema (`perfetto_trace.proto`).

pub mod trace {
    pub const PACKET: u32 = 1;
}

pub mod packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const PERF_SAMPLE: u32 = 66;
    /// All interned data that this sequence wrote before becomes invalid.
    pub const STATE_CLEARED: u64 = 1;
    /// The packet refers to interned data.
    pub const NEEDS_STATE: u64 = 2;
}

pub mod clock_snapshot {
    pub const CLOCKS: u32 = 1;
    pub const CLOCK_ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const IS_INCREMENTAL: u32 = 3;
    /// The wall clock, in nanoseconds since 1970.
    pub const REALTIME: u64 = 1;
    /// The clock of timestamps in packets that name no clock.
    pub const BOOTTIME: u64 = 6;
    /// The first number that a sequence may assign to a clock of its own.
    pub const OWN: u64 = 64;
}

pub mod defaults {
    pub const CLOCK_ID: u32 = 58;
}

pub mod descriptor {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const CHILD_ORDERING: u32 = 11;
    pub const RANK: u32 = 12;
    pub const DESCRIPTION: u32 = 14;
    /// Viewers order the child tracks by their [`RANK`].
    pub const EXPLICIT: u64 = 3;
}

pub mod process {
    pub const PID: u32 = 1;
    pub const CMDLINE: u32 = 2;
    pub const NAME: u32 = 6;
    pub const LABELS: u32 = 8;
}

pub mod thread {
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const NAME: u32 = 5;
}

pub mod counter {
    pub const UNIT: u32 = 3;
    pub const UNIT_NAME: u32 = 6;
    pub const COUNT: u64 = 2;
    pub const SIZE_BYTES: u64 = 3;
}

pub mod event {
    pub const CATEGORY_IID: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const CATEGORY: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER: u32 = 30;
    pub const DOUBLE_COUNTER: u32 = 44;
    pub const FLOW: u32 = 47;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const POINT: u64 = 4;
}

pub mod annotation {
    pub const NAME_IID: u32 = 1;
    pub const UINT: u32 = 3;
    pub const INT: u32 = 4;
    pub const DOUBLE: u32 = 5;
    pub const STRING: u32 = 6;
    pub const BOOL: u32 = 2;
    pub const JSON: u32 = 9;
    pub const NAME: u32 = 10;
}

pub mod interned {
    pub const CATEGORIES: u32 = 1;
    pub const EVENT_NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const FUNCTIONS: u32 = 5;
    pub const FRAMES: u32 = 6;
    pub const STACKS: u32 = 7;
    pub const MAPPING_PATHS: u32 = 17;
    pub const SOURCE_PATHS: u32 = 18;
    pub const MAPPINGS: u32 = 19;
    pub const IID: u32 = 1;
    pub const TEXT: u32 = 2;
}

pub mod frame {
    pub const FUNCTION: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const REL_PC: u32 = 4;
    pub const SOURCE_PATH: u32 = 5;
    pub const LINE: u32 = 6;
}

pub mod stack {
    pub const FRAME: u32 = 2;
}

pub mod mapping {
    pub const PATH: u32 = 7;
}

pub mod sample {
    pub const CPU: u32 = 1;
    pub const PID: u32 = 2;
    pub const TID: u32 = 3;
    pub const STACK: u32 = 4;
    pub const MODE: u32 = 5;
    pub const COUNT: u32 = 6;
    pub const USER: u64 = 2;
}
