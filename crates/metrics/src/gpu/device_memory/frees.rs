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

/// Returns the bytes of each row's block; 0 if they aren't known. A free has those of its
/// allocation. `rows` must be in order of time.
pub fn sizes(rows: &[DeviceAllocation]) -> Vec<u64> {
    let mut live: HashMap<(ProcessIndex, Allocator, u64), u64> = HashMap::new();
    let mut size = |row: &DeviceAllocation| {
        let key = (row.process, row.allocator, row.address);
        let taken = if row.free { live.remove(&key) } else { None };
        let bytes = row.bytes.or(taken).unwrap_or(0);
        // A framework reports the size of what it takes back.
        if !row.free && row.allocator != Allocator::Framework {
            live.insert(key, bytes);
        }
        bytes
    };
    rows.iter().map(&mut size).collect()
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
