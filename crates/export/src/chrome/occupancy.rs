//! Computes how far a kernel's blocks fill a device, as Kineto does for the arguments of a kernel.

use serde_json::Value;
use tprof_trace::TraceFile;
use tprof_trace::model::{Device, Kernel};

/// Registers are allocated to a warp in units of this many.
const REGISTER_UNIT: u64 = 256;
/// A multiprocessor's registers are divided into this many equal parts. All registers of a warp
/// come from one part.
const PARTS: u64 = 4;
/// Shared memory is allocated to a block in units of this many bytes.
const SHARED_UNIT: u64 = 128;
/// From compute capability 8 on, the system takes this many bytes of shared memory for each block.
const SHARED_OF_SYSTEM: u64 = 1024;

/// Resources of one multiprocessor of a device, and the number of multiprocessors.
pub(super) struct Multiprocessors {
    count: u64,
    warp_threads: u64,
    most_threads: u64,
    most_blocks: u64,
    registers: u64,
    shared_bytes: u64,
    /// Shared memory that the system takes from each block, in bytes.
    system_bytes: u64,
}

/// Occupancy of a device by a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KernelOccupancy {
    /// Blocks of the kernel per multiprocessor.
    pub blocks: f64,
    /// Warps of the kernel per multiprocessor.
    pub warps: f64,
    /// Percentage of a multiprocessor's threads that blocks of the kernel can occupy at once.
    /// `None` if the kernel's registers or shared memory are unknown.
    pub occupancy: Option<u64>,
}

impl Multiprocessors {
    /// Reads a device's properties; `None` if one of them is unknown.
    pub fn of(trace: &TraceFile, device: &Device) -> Option<Multiprocessors> {
        let properties: Value = serde_json::from_str(trace.name(device.properties)).ok()?;
        let number = |key: &str| properties[key].as_u64().filter(|value| *value > 0);
        Some(Multiprocessors {
            count: u64::from(device.processors.filter(|count| *count > 0)?),
            warp_threads: number("warpSize")?,
            most_threads: number("maxThreadsPerMultiprocessor")?,
            most_blocks: number("maxBlocksPerMultiprocessor")?,
            registers: number("regsPerMultiprocessor")?,
            shared_bytes: number("sharedMemPerMultiprocessor")?,
            system_bytes: if device.compute_major? >= 8 { SHARED_OF_SYSTEM } else { 0 },
        })
    }

    /// Computes a kernel's occupancy; `None` if its sizes are unknown.
    pub fn load(&self, row: &Kernel) -> Option<KernelOccupancy> {
        let product = |sizes: [u32; 3]| sizes.iter().map(|&size| u64::from(size)).product::<u64>();
        let (grid, threads) = (product(row.grid), product(row.block));
        if grid == 0 || threads == 0 {
            return None;
        }
        let blocks = grid as f64 / self.count as f64;
        let at_once = self.blocks_at_once(row, threads);
        let share = |most: u64| {
            let blocks = blocks.min(most as f64);
            blocks * threads as f64 / self.most_threads as f64
        };
        Some(KernelOccupancy {
            blocks,
            warps: blocks * threads as f64 / self.warp_threads as f64,
            occupancy: at_once.map(|most| (100.0 * share(most)).round() as u64),
        })
    }

    /// Returns the number of blocks that fit one multiprocessor at once. The scarcest resource
    /// limits it.
    fn blocks_at_once(&self, row: &Kernel, threads: u64) -> Option<u64> {
        let warps = threads.div_ceil(self.warp_threads);
        let of_threads = self.most_threads / self.warp_threads / warps;
        let registers = u64::from(row.registers?) * self.warp_threads;
        let of_registers = match registers.next_multiple_of(REGISTER_UNIT) {
            0 => u64::MAX,
            of_warp => self.registers / PARTS / of_warp * PARTS / warps,
        };
        let shared = u64::from(row.shared_static_bytes.or(row.shared_dynamic_bytes)?)
            + u64::from(row.shared_static_bytes.and(row.shared_dynamic_bytes).unwrap_or(0))
            + self.system_bytes;
        let of_shared = match shared.next_multiple_of(SHARED_UNIT) {
            0 => u64::MAX,
            of_block => self.shared_bytes / of_block,
        };
        Some(self.most_blocks.min(of_threads).min(of_registers).min(of_shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Multiprocessors = Multiprocessors {
        count: 132,
        warp_threads: 32,
        most_threads: 2048,
        most_blocks: 32,
        registers: 65_536,
        shared_bytes: 233_472,
        system_bytes: 1024,
    };

    fn kernel(grid: u32, block: u32, registers: u32, shared: u32) -> Kernel {
        Kernel {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            registers: Some(registers),
            shared_static_bytes: Some(shared),
            shared_dynamic_bytes: Some(0),
            ..Kernel::default()
        }
    }

    /// The kernel and its figures are from a trace that torch.profiler recorded on an H200.
    #[test]
    fn occupancy_equals_kinetos_value() {
        let load = |row: &Kernel| H200.load(row).unwrap();
        let few = load(&kernel(16, 128, 18, 0));
        assert_eq!((few.blocks * 1e6).round(), 121_212.0);
        assert_eq!((few.warps * 1e6).round(), 484_848.0);
        assert_eq!(few.occupancy, Some(1));
    }

    #[test]
    fn the_scarcest_resource_limits_blocks() {
        let occupancy = |registers, shared, block| {
            H200.load(&kernel(100_000, block, registers, shared)).unwrap().occupancy
        };
        assert_eq!(occupancy(32, 0, 256), Some(100));
        // With 96 registers per thread, each of the 4 parts has room for 5 warps: 20 of 64.
        assert_eq!(occupancy(96, 0, 32), Some(31));
        assert_eq!(occupancy(32, 100 << 10, 256), Some(25));
        // Without other limits, a multiprocessor has room for 32 blocks, here of one warp each.
        assert_eq!(occupancy(16, 0, 32), Some(50));
        // The block is too large for a multiprocessor.
        assert_eq!(occupancy(255, 0, 1024), Some(0));
    }

    #[test]
    fn occupancy_is_unknown_without_the_kernels_sizes() {
        assert_eq!(H200.load(&kernel(0, 128, 18, 0)), None);
        let row = Kernel { registers: None, ..kernel(132, 128, 18, 0) };
        let load = H200.load(&row).unwrap();
        assert_eq!((load.blocks, load.warps, load.occupancy), (1.0, 4.0, None));
    }
}
