//! Corrects the device and the pool of frees. A program may call `cudaFree` while another device is
//! selected, or for a block of a pool, so the recorded free names the wrong device or allocator.

use std::borrow::Cow;
use std::collections::HashMap;

use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex};

/// Returns the rows with each free that CUDA recorded moved to its block's device and allocator.
/// `rows` must be in order of time.
pub fn place(rows: &[DeviceAllocation]) -> Cow<'_, [DeviceAllocation]> {
    let mut placed = Cow::Borrowed(rows);
    let mut live: HashMap<(ProcessIndex, u64), (Option<u32>, Allocator)> = HashMap::new();
    let of_cuda = |row: &DeviceAllocation| {
        row.address != 0 && matches!(row.allocator, Allocator::Library | Allocator::Pool)
    };
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| of_cuda(row)) {
        let key = (row.process, row.address);
        let own = (row.device, row.allocator);
        if !row.free {
            live.insert(key, own);
        } else if let Some((device, allocator)) = live.remove(&key).filter(|block| *block != own)
            && let Some(row) = placed.to_mut().get_mut(at)
        {
            (row.device, row.allocator) = (device, allocator);
        }
    }
    placed
}

/// Returns the rows with the size of each free whose allocation is among them. `rows` must be in
/// order of time.
pub fn sized(rows: &[DeviceAllocation]) -> Vec<DeviceAllocation> {
    let mut live: HashMap<(ProcessIndex, Allocator, u64), u64> = HashMap::new();
    let mut sized = rows.to_vec();
    for row in sized.iter_mut().filter(|row| row.address != 0) {
        let key = (row.process, row.allocator, row.address);
        if row.free {
            let taken = live.remove(&key);
            row.bytes = row.bytes.or(taken);
        } else if let Some(bytes) = row.bytes {
            live.insert(key, bytes);
        }
    }
    sized
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: u64, free: bool, device: u32, allocator: Allocator) -> DeviceAllocation {
        let device = Some(device);
        DeviceAllocation { address, free, device, allocator, ..DeviceAllocation::default() }
    }

    #[test]
    fn a_free_moves_to_the_device_and_pool_of_its_block() {
        use Allocator::{Framework, Library, Pool};
        let rows = [
            row(7, false, 1, Library),
            row(8, false, 0, Pool),
            // A framework's block at the same address as its segment. Its free isn't CUDA's and
            // stays as it is.
            row(7, false, 1, Framework),
            row(7, true, 0, Framework),
            row(7, true, 0, Library),
            row(8, true, 0, Library),
            row(9, true, 0, Library),
        ];
        let placed = place(&rows);
        let of = |at: usize| (placed[at].device, placed[at].allocator);
        assert_eq!((of(3), of(4)), ((Some(0), Framework), (Some(1), Library)));
        assert_eq!((of(5), of(6)), ((Some(0), Pool), (Some(0), Library)));
        assert!(matches!(place(&rows[..3]), Cow::Borrowed(_)));
    }
}
