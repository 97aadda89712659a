//! Computes how many blocks of a kernel fill a GPU.
//!
//! A wave is the set of all blocks that a device can run at once. Half a wave is enough to keep the
//! device busy: multiprocessors hardly gain from more than half of their threads.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{Device, KernelShape, NameId, ProcessIndex};

/// Number of threads in a warp.
const WARP: u64 = 32;
/// A multiprocessor allocates registers to a warp in units of this many. It has four parts
/// (`PARTS`), and each warp runs on one of them.
const REGISTER_UNIT: u64 = 256;
const PARTS: u64 = 4;
/// A multiprocessor allocates shared memory to a block in units of this many bytes. From compute
/// capability 8 on, the system also uses one KiB (`SHARED_OF_SYSTEM`) of it for each block.
const SHARED_UNIT: u64 = 128;
const SHARED_OF_SYSTEM: u64 = 1024;

/// The limits of a multiprocessor, as far as they were recorded.
#[derive(Clone, Copy, Debug, Default)]
struct Multiprocessor {
    blocks: Option<u64>,
    threads: Option<u64>,
    registers: Option<u64>,
    shared_bytes: Option<u64>,
    shared_of_system: u64,
}

impl Multiprocessor {
    fn of(file: &TraceFile, device: &Device) -> Multiprocessor {
        let json = serde_json::from_str::<serde_json::Value>(file.name(device.properties));
        let json = json.unwrap_or_default();
        let number = |key: &str| json.get(key)?.as_u64().filter(|number| *number > 0);
        let has_reserve = device.compute_major.is_some_and(|major| major >= 8);
        Multiprocessor {
            blocks: number("maxBlocksPerMultiprocessor"),
            threads: number("maxThreadsPerMultiprocessor"),
            registers: number("regsPerMultiprocessor"),
            shared_bytes: number("sharedMemPerMultiprocessor"),
            shared_of_system: if has_reserve { SHARED_OF_SYSTEM } else { 0 },
        }
    }

    /// Returns how many of the kernel's blocks run on the multiprocessor at once, by the known
    /// limits; 1 if the maximum number of threads isn't known.
    fn blocks_of(&self, kernel: &KernelShape) -> u64 {
        let threads: u64 = kernel.block.iter().map(|side| u64::from(*side)).product();
        if threads == 0 {
            return 1;
        }
        let warps = threads.div_ceil(WARP);
        let by_threads = self.threads.map(|most| most / WARP / warps);
        let by_registers = self.registers.zip(kernel.registers).map(|(all, each)| {
            let of_warp = (u64::from(each.max(1)) * WARP).next_multiple_of(REGISTER_UNIT);
            all / of_warp / PARTS * PARTS / warps
        });
        let shared = [kernel.shared_static_bytes, kernel.shared_dynamic_bytes];
        let shared: u64 = shared.iter().flatten().map(|bytes| u64::from(*bytes)).sum();
        let shared = (shared + self.shared_of_system).next_multiple_of(SHARED_UNIT);
        let by_shared = self.shared_bytes.map(|all| all / shared.max(1));
        // If the maximum number of threads isn't known, the other limits don't say enough.
        let limits = [by_threads, self.blocks, by_registers, by_shared];
        by_threads.and(limits.into_iter().flatten().min()).map_or(1, |least| least.max(1))
    }
}

/// Returns for each kernel name the number of blocks that fill a multiprocessor: half of the number
/// that it can run at once. If runs of a kernel differ, the smallest number counts.
pub fn blocks_that_fill(file: &TraceFile) -> FxHashMap<(ProcessIndex, u32, NameId), u64> {
    let devices: FxHashMap<(ProcessIndex, u32), Multiprocessor> = (file.devices().iter())
        .map(|row| ((row.process, row.device), Multiprocessor::of(file, row)))
        .collect();
    let mut least: FxHashMap<(ProcessIndex, u32, NameId), u64> = FxHashMap::default();
    for row in file.blocks::<KernelShape>().flatten() {
        let Some(device) = devices.get(&(row.process, row.device)) else { continue };
        let blocks = device.blocks_of(&row).div_ceil(2);
        let known = least.entry((row.process, row.device, row.name)).or_insert(blocks);
        *known = blocks.min(*known);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of a multiprocessor of an H200.
    const HOPPER: Multiprocessor = Multiprocessor {
        blocks: Some(32),
        threads: Some(2048),
        registers: Some(65_536),
        shared_bytes: Some(233_472),
        shared_of_system: SHARED_OF_SYSTEM,
    };

    fn blocks(threads: u32, registers: u32, shared_dynamic: u32) -> u64 {
        HOPPER.blocks_of(&KernelShape {
            block: [threads, 1, 1],
            registers: Some(registers),
            shared_static_bytes: Some(0),
            shared_dynamic_bytes: Some(shared_dynamic),
            ..KernelShape::default()
        })
    }

    #[test]
    fn the_scarcest_resource_limits_the_blocks_of_a_multiprocessor() {
        assert_eq!(blocks(128, 16, 0), 16, "threads");
        assert_eq!(blocks(32, 16, 0), 32, "blocks");
        assert_eq!(blocks(256, 64, 0), 4, "registers");
        assert_eq!(blocks(384, 168, 200_000), 1, "shared memory");
        assert_eq!(blocks(128, 32, 50_000), 4, "shared memory with the system's");
        assert_eq!(Multiprocessor::default().blocks_of(&KernelShape::default()), 1);
    }
}
