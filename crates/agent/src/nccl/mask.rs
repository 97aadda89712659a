//! Decides which events NCCL must report to the plugin.

use tprof_inject::environment;
use tprof_wire::env;

/// Bits of NCCL's activation mask. An event's type is one of these bits.
pub mod event {
    #![allow(missing_docs)] // NCCL's names
    pub const GROUP: u64 = 1 << 0;
    pub const COLL: u64 = 1 << 1;
    pub const P2P: u64 = 1 << 2;
    pub const PROXY_OP: u64 = 1 << 3;
    pub const PROXY_STEP: u64 = 1 << 4;
    pub const KERNEL_CH: u64 = 1 << 6;
    pub const COLL_API: u64 = 1 << 9;
    pub const P2P_API: u64 = 1 << 10;
    pub const CE_COLL: u64 = 1 << 12;
}

/// Events of operations. Each operation costs one callback.
const OPERATIONS: u64 = event::COLL | event::P2P;
/// Events of the calls that request operations, from version 5 on.
const CALLS: u64 = event::COLL_API | event::P2P_API;
/// Events of NCCL's proxy thread, which transfers data for the operations.
const PROXY: u64 = event::PROXY_OP | event::PROXY_STEP;

/// The mask for a version of the interface, with the events that the run requests.
pub fn wanted(version: u32) -> i32 {
    let asked = environment::variable(env::NCCL_EVENTS).unwrap_or_default();
    of_words(version, asked) as i32
}

fn of_words(version: u32, asked: &[u8]) -> u64 {
    let mut mask = OPERATIONS;
    if version >= 5 {
        mask |= CALLS;
    }
    if version >= 6 {
        mask |= event::CE_COLL;
    }
    for word in asked.split(|byte| *byte == b',') {
        match word {
            b"proxy" => mask |= PROXY,
            b"kernels" if version >= 3 => mask |= event::KERNEL_CH,
            _ => {}
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_events_are_only_reported_if_they_are_requested() {
        assert_eq!(of_words(1, b""), 0b110);
        assert_eq!(of_words(5, b""), 0b110_0000_0110);
        assert_eq!(of_words(6, b"nothing"), 0b1_0110_0000_0110);
        assert_eq!(of_words(4, b"proxy,kernels"), 0b101_1110);
        assert_eq!(of_words(2, b"kernels"), 0b110, "no kernel events before version 3");
    }
}
