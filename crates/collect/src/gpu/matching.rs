//! Finds the changes of device memory that only CUPTI recorded. Hooks record most changes as well,
//! with a stack, and such a change gets one row, the hook's. But NCCL and cuBLAS contain a CUDA
//! runtime of their own, which the hooks can't interpose. Their changes are known from CUPTI only,
//! and get CUPTI's row.
//!
//! A record of CUPTI and a hook's call are the same change if they agree in address, direction and
//! size (if both know it), and if CUPTI's time is within the call by the joined clocks. That is
//! unambiguous, because calls of one direction at one address never overlap. For physical memory
//! the two addresses may differ, so size and time decide. If CUPTI says that a call of the CUDA
//! runtime made the change, it isn't physical memory, because the runtime has no functions for
//! that.

use super::virtual_memory::MappingCall;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use tprof_trace::model::DeviceAllocation;
use tprof_wire::calls::Mapping;

/// Largest error of the joined clocks at the ends of a call, ns.
const APART_NS: u64 = 1_000_000;
/// A hook's record of a change arrives at most this long after CUPTI's, ns. It is late if the
/// thread waits for the collector to take its first stack.
const HOOKS_LATE_NS: u64 = 5_000_000_000;
/// Number of hooks' calls that may wait for CUPTI's record. If there are more, the oldest count as
/// recorded only by hooks.
const MAX_CALLS: usize = 1 << 18;
/// Number of resets, of calls of the virtual memory management, and of correlations of runtime
/// calls that are remembered.
const MAX_OTHERS: usize = 1 << 16;
/// Number of virtual memory calls of one size that are compared with a change, from the last one
/// before it backwards. At most this many threads may be in such a call at once.
const AT_ONCE: usize = 256;
/// Number of CUPTI's records that may wait. If there are more, the oldest are decided at once.
const MAX_ROWS: usize = 1 << 20;

/// A call that changed memory, as a hook recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCall {
    /// Address, or handle of physical memory; 0 for a reset.
    pub address: u64,
    /// Bytes that the call allocated; 0 if unknown.
    pub bytes: u64,
    /// Whether the call frees memory.
    pub free: bool,
    /// Time when the call began, ns.
    pub from_ns: u64,
    /// Time when the call returned, ns.
    pub to_ns: u64,
    /// The kind of the call, which decides how CUPTI's record may differ from the hook's.
    pub how: CallKind,
}

/// Kinds of [`MemoryCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The change is at the call's address.
    Plain,
    /// The call frees all memory on this device.
    Reset(u32),
    /// A call of the driver's virtual memory management. It isn't documented which address CUPTI
    /// reports for such a call.
    Virtual,
}

impl MemoryCall {
    /// Returns the change that CUPTI may report for this call of the virtual memory management.
    pub fn of_mapping(call: &MappingCall) -> MemoryCall {
        let free = matches!(call.how, Mapping::Unmap | Mapping::Release);
        let MappingCall { what: address, bytes, time_ns, .. } = *call;
        let how = CallKind::Virtual;
        MemoryCall { address, bytes, free, from_ns: time_ns, to_ns: time_ns, how }
    }
}

/// The numbers of changes that CUPTI, the hooks or both recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Changes that both recorded.
    pub both: u64,
    /// Changes that only CUPTI recorded.
    pub only_cupti: u64,
    /// Changes that only the hooks recorded.
    pub only_hooks: u64,
}

/// The changes of a process that wait for their counterpart.
#[derive(Debug, Default)]
pub struct Matching {
    calls: HashMap<(u64, bool), VecDeque<MemoryCall>>,
    /// Keys and times of the calls, in the order of their arrival. A call that was matched stays
    /// here until it is the oldest.
    order: VecDeque<((u64, bool), u64)>,
    /// Number of calls in `calls`.
    waiting: usize,
    /// For each device, the time when each reset began and the time when it returned.
    resets: HashMap<u32, BTreeMap<u64, u64>>,
    virtual_calls: VirtualCalls,
    /// Addresses of CUPTI's records that were matched with virtual memory calls.
    virtual_addresses: HashSet<u64>,
    /// Correlations of the runtime calls that allocate or free memory. A call may change several
    /// blocks.
    of_runtime: HashSet<u64>,
    /// The same correlations, in the order of their arrival.
    runtime_order: VecDeque<u64>,
    rows: Vec<DeviceAllocation>,
    /// Numbers of the changes that were decided so far.
    pub found: Matched,
}

impl Matching {
    /// Adds a call that changed memory, as a hook recorded it.
    pub fn called(&mut self, call: MemoryCall) {
        match call.how {
            CallKind::Reset(device) => {
                let resets = self.resets.entry(device).or_default();
                resets.insert(call.from_ns, call.to_ns);
                if resets.len() > MAX_OTHERS {
                    resets.pop_first();
                }
            }
            CallKind::Virtual if call.free => {}
            CallKind::Virtual => self.virtual_calls.called(call),
            CallKind::Plain => {
                let key = (call.address, call.free);
                self.calls.entry(key).or_default().push_back(call);
                self.order.push_back((key, call.from_ns));
                self.waiting += 1;
            }
        }
        while self.waiting > MAX_CALLS || self.order.len() > 4 * MAX_CALLS {
            let Some((key, from_ns)) = self.order.pop_front() else { break };
            if let Some(calls) = self.calls.get_mut(&key)
                && let Some(at) = calls.iter().position(|call| call.from_ns == from_ns)
            {
                calls.remove(at);
                self.found.only_hooks += 1;
                self.forget(key);
            }
        }
    }

    /// Adds the correlation of a call of the CUDA runtime that allocates or frees memory. CUPTI
    /// recorded the call.
    pub fn called_runtime(&mut self, correlation: u64) {
        self.of_runtime.insert(correlation);
        self.runtime_order.push_back(correlation);
        if self.runtime_order.len() > MAX_OTHERS
            && let Some(oldest) = self.runtime_order.pop_front()
        {
            self.of_runtime.remove(&oldest);
        }
    }

    /// Adds a change that CUPTI recorded.
    pub fn recorded(&mut self, row: DeviceAllocation) {
        self.rows.push(row);
    }

    /// Returns the time of the first of CUPTI's changes that wait for a hook's call.
    pub fn first_ns(&self) -> Option<u64> {
        self.rows.iter().map(|row| row.time_ns).min()
    }

    /// Returns the changes that only CUPTI recorded. A change waits until a hook's record of it
    /// would have arrived, or until `last` is set.
    pub fn settle(&mut self, now_ns: u64, last: bool) -> Vec<DeviceAllocation> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        self.rows.sort_by_key(|row| row.time_ns);
        let until = now_ns.saturating_sub(HOOKS_LATE_NS);
        let ripe = match last {
            true => self.rows.len(),
            false => {
                let old = self.rows.partition_point(|row| row.time_ns <= until);
                old.max(self.rows.len().saturating_sub(MAX_ROWS))
            }
        };
        let mut rows: Vec<DeviceAllocation> = self.rows.drain(..ripe).collect();
        rows.retain(|row| !self.take(row));
        // CUPTI may report a larger size for an array than the hook computes. Changes with the
        // hook's exact size have been matched above, so any size is accepted now.
        rows.retain(|row| !self.take_plain(row, |_| true));
        self.found.only_cupti += rows.len() as u64;
        rows
    }

    /// Counts the calls that still wait as recorded only by hooks, and returns all numbers.
    pub fn finish(&mut self) -> Matched {
        self.found.only_hooks += self.waiting as u64;
        self.waiting = 0;
        self.calls.clear();
        self.found
    }

    /// Whether a hook recorded this change too. If so, the hook's call is removed.
    fn take(&mut self, row: &DeviceAllocation) -> bool {
        let of_runtime = row.correlation.is_some_and(|of| self.of_runtime.contains(&of));
        // If memory was mapped at this address, its first free is the end of the mapping. A later
        // free belongs to other memory, because the address may be reused at once.
        if row.free && !of_runtime && self.virtual_addresses.remove(&row.address) {
            self.found.both += 1;
            return true;
        }
        let is_as_long =
            |call: &MemoryCall| call.bytes == 0 || row.bytes.is_none_or(|b| b == call.bytes);
        if self.take_plain(row, is_as_long) {
            if !row.free {
                self.virtual_addresses.remove(&row.address);
            }
            return true;
        }
        let is_virtual = !row.free && !of_runtime && self.virtual_calls.take(row);
        if is_virtual {
            self.virtual_addresses.insert(row.address);
        }
        let is_known = is_virtual || self.is_reset(row);
        self.found.both += u64::from(is_known);
        is_known
    }

    /// Whether a call at this address and time passes `wanted`. If so, the call is removed.
    fn take_plain(&mut self, row: &DeviceAllocation, wanted: impl Fn(&MemoryCall) -> bool) -> bool {
        let key = (row.address, row.free);
        let Some(calls) = self.calls.get_mut(&key) else { return false };
        let near = calls.iter().enumerate().filter(|(_, call)| wanted(call));
        let near = near.map(|(at, call)| (at, distance(call, row.time_ns)));
        let Some((at, apart)) = near.min_by_key(|(_, apart)| *apart) else { return false };
        if apart > APART_NS {
            return false;
        }
        calls.remove(at);
        self.forget(key);
        self.found.both += 1;
        true
    }

    /// Whether the change is a free during a reset of its device. For the hooks the reset is one
    /// call, which ends every block.
    fn is_reset(&self, row: &DeviceAllocation) -> bool {
        let until = row.time_ns.saturating_add(APART_NS);
        let of = self.resets.iter().filter(|(device, _)| row.device.is_none_or(|d| d == **device));
        let mut last = of.filter_map(|(_, resets)| resets.range(..=until).next_back());
        row.free && last.any(|(_, to_ns)| to_ns.saturating_add(APART_NS) >= row.time_ns)
    }

    fn forget(&mut self, key: (u64, bool)) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.calls.get(&key).is_some_and(VecDeque::is_empty) {
            self.calls.remove(&key);
        }
    }
}

/// Calls that created or mapped physical memory, by size and time. They aren't stored by address,
/// because CUPTI may report another address.
#[derive(Debug, Default)]
struct VirtualCalls {
    /// Number of calls by size, beginning and end.
    calls: BTreeMap<(u64, u64, u64), u32>,
    /// The calls in the order of their arrival. A call that was matched stays here until it is the
    /// oldest.
    order: VecDeque<(u64, u64, u64)>,
}

impl VirtualCalls {
    fn called(&mut self, call: MemoryCall) {
        let key = (call.bytes, call.from_ns, call.to_ns);
        *self.calls.entry(key).or_default() += 1;
        self.order.push_back(key);
        if self.order.len() > MAX_OTHERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    /// Whether a call has this size and time. If so, the call is removed.
    fn take(&mut self, row: &DeviceAllocation) -> bool {
        let Some(bytes) = row.bytes else { return false };
        let until = row.time_ns.saturating_add(APART_NS);
        let before = self.calls.range((bytes, 0, 0)..=(bytes, until, u64::MAX)).rev();
        let near = before.take(AT_ONCE).map(|(key, _)| (*key, apart(key.1, key.2, row.time_ns)));
        let nearest = near.min_by_key(|(_, apart)| *apart);
        nearest.is_some_and(|(key, apart)| apart <= APART_NS && self.remove(key))
    }

    fn remove(&mut self, key: (u64, u64, u64)) -> bool {
        let Some(count) = self.calls.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.calls.remove(&key);
        }
        true
    }
}

/// Returns how far a time is outside a call, ns; 0 if it is within the call.
fn distance(call: &MemoryCall, time_ns: u64) -> u64 {
    apart(call.from_ns, call.to_ns, time_ns)
}

fn apart(from_ns: u64, to_ns: u64, time_ns: u64) -> u64 {
    from_ns.saturating_sub(time_ns).max(time_ns.saturating_sub(to_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn call(address: u64, free: bool, from_ns: u64, to_ns: u64) -> MemoryCall {
        MemoryCall { address, bytes: 64, free, from_ns, to_ns, how: CallKind::Plain }
    }

    fn row(address: u64, free: bool, time_ns: u64) -> DeviceAllocation {
        let (device, bytes) = (Some(0), Some(64));
        DeviceAllocation { address, free, time_ns, device, bytes, ..DeviceAllocation::default() }
    }

    fn addresses(rows: &[DeviceAllocation]) -> Vec<(u64, bool)> {
        rows.iter().map(|row| (row.address, row.free)).collect()
    }

    #[test]
    fn changes_that_a_hook_recorded_too_get_no_row() {
        let mut all = Matching::default();
        // A library with its own runtime, which has no hooks, allocates at the address first.
        for (free, at) in [(false, 100), (true, 200), (false, 302), (true, 400)] {
            all.recorded(row(7, free, at * MS));
        }
        all.recorded(row(8, false, 310 * MS));
        all.called(call(7, false, 300 * MS, 305 * MS));
        all.called(call(7, true, 400 * MS, 420 * MS));
        all.called(call(9, false, 500 * MS, 501 * MS));
        assert_eq!(addresses(&all.settle(1000 * MS, true)), [(7, false), (7, true), (8, false)]);
        assert_eq!(all.finish(), Matched { both: 2, only_cupti: 3, only_hooks: 1 });
    }

    #[test]
    fn changes_in_quick_succession_are_matched_with_their_own_calls() {
        let mut all = Matching::default();
        for turn in 0..1000 {
            let at = 10 * MS + turn * 7_000;
            all.called(call(7, false, at, at + 5_000));
            all.called(call(7, true, at + 5_100, at + 6_900));
            // CUPTI's times are 3 us later than those of the hooks.
            all.recorded(row(7, false, at + 3_500));
            all.recorded(row(7, true, at + 8_300));
        }
        assert!(all.settle(1000 * MS, true).is_empty());
        assert_eq!(all.finish(), Matched { both: 2000, only_cupti: 0, only_hooks: 0 });
        assert!(all.calls.is_empty());
    }

    #[test]
    fn a_change_waits_for_a_late_record_of_a_hook() {
        let mut all = Matching::default();
        all.recorded(row(7, false, 100 * MS));
        assert!(all.settle(5_000 * MS, false).is_empty());
        all.called(call(7, false, 99 * MS, 101 * MS));
        assert!(all.settle(6_000 * MS, false).is_empty());
        assert_eq!(all.finish(), Matched { both: 1, only_cupti: 0, only_hooks: 0 });
        all.recorded(row(7, true, 6_000 * MS));
        assert_eq!(all.settle(11_001 * MS, false).len(), 1);
    }

    #[test]
    fn frees_on_the_device_during_its_reset_are_matched() {
        let mut all = Matching::default();
        let reset = MemoryCall { how: CallKind::Reset(0), ..call(0, true, 100 * MS, 120 * MS) };
        all.called(reset);
        all.recorded(row(7, true, 110 * MS));
        all.recorded(DeviceAllocation { device: Some(1), ..row(8, true, 110 * MS) });
        all.recorded(row(9, false, 110 * MS));
        assert_eq!(addresses(&all.settle(1000 * MS, true)), [(8, true), (9, false)]);
    }

    #[test]
    fn physical_memory_is_matched_by_size_at_any_address() {
        let mut all = Matching::default();
        let create = MemoryCall { how: CallKind::Virtual, ..call(3, false, 100 * MS, 101 * MS) };
        all.called(create);
        all.recorded(row(0xabc, false, 100 * MS));
        // One record has another size. Another one has the same size, but another time.
        all.recorded(DeviceAllocation { bytes: Some(65), ..row(0xdef, false, 100 * MS) });
        all.recorded(row(0x123, false, 200 * MS));
        all.recorded(row(0xabc, true, 900 * MS));
        all.recorded(row(0xabc, true, 950 * MS));
        let left = [(0xdef, false), (0x123, false), (0xabc, true)];
        assert_eq!(addresses(&all.settle(1000 * MS, true)), left);
    }

    #[test]
    fn memory_of_the_runtime_is_not_matched_as_physical_memory() {
        let mut all = Matching::default();
        let how = CallKind::Virtual;
        all.called(MemoryCall { how, ..call(3, false, 100 * MS, 100 * MS + 9_000) });
        // A library allocates a block of the same size just before. CUPTI may or may not have
        // recorded that call of the library.
        let at = |address, time_ns, correlation| DeviceAllocation {
            correlation: Some(correlation),
            ..row(address, false, time_ns)
        };
        all.called_runtime(1);
        all.recorded(at(0x111, 100 * MS - 5_000, 1));
        all.recorded(at(0xabc, 100 * MS + 4_000, 2));
        assert_eq!(addresses(&all.settle(1000 * MS, true)), [(0x111, false)]);
    }

    /// CUPTI 13.0 recorded these times on an H200: the runtime allocates at the address of a
    /// mapping that was removed a quarter of a millisecond before.
    #[test]
    fn an_address_is_mapped_unmapped_and_allocated_again() {
        const US: u64 = 1000;
        let (mapped, block) = (10_485_760, 7_340_032);
        let mut all = Matching::default();
        let bytes = |bytes, call| MemoryCall { bytes, ..call };
        let create = call(3, false, 350_765 * US, 350_765 * US);
        all.called(MemoryCall { how: CallKind::Virtual, ..bytes(mapped, create) });
        all.called(bytes(block, call(0xa, false, 351_080 * US, 351_088 * US)));
        all.called(bytes(0, call(0xa, true, 351_500 * US, 351_510 * US)));
        let recorded = |free, bytes, at_us| DeviceAllocation {
            bytes: Some(bytes),
            ..row(0xa, free, at_us * US)
        };
        all.recorded(recorded(false, mapped, 350_843));
        all.recorded(recorded(true, mapped, 350_918));
        all.recorded(recorded(false, block, 351_085));
        all.recorded(recorded(true, block, 351_505));
        assert_eq!(addresses(&all.settle(1000 * MS, true)), []);
        assert_eq!(all.finish(), Matched { both: 4, only_cupti: 0, only_hooks: 0 });
    }

    #[test]
    fn an_array_is_matched_although_cupti_reports_a_larger_size() {
        let mut all = Matching::default();
        all.called(call(7, false, 100 * MS, 101 * MS));
        all.recorded(DeviceAllocation { bytes: Some(128), ..row(7, false, 100 * MS) });
        // If a change of the exact size follows, the call is matched with that change.
        all.called(call(8, false, 200 * MS, 201 * MS));
        all.recorded(DeviceAllocation { bytes: Some(128), ..row(8, false, 199 * MS + 500_000) });
        all.recorded(row(8, false, 200 * MS));
        let left = all.settle(1000 * MS, true);
        assert_eq!(left.iter().map(|row| row.bytes).collect::<Vec<_>>(), [Some(128)]);
        assert_eq!(addresses(&left), [(8, false)]);
    }

    #[test]
    fn a_change_at_any_time_within_a_long_call_is_matched() {
        let mut all = Matching::default();
        let how = CallKind::Virtual;
        all.called(MemoryCall { how, ..call(3, false, 100 * MS, 180 * MS) });
        // Other calls of the same size begin after this call and return before it.
        for at in 110..170 {
            all.called(MemoryCall { how, ..call(at, false, at * MS, at * MS + 9_000) });
        }
        all.recorded(row(0xabc, false, 179 * MS));
        all.recorded(row(0xdef, false, 179 * MS));
        assert_eq!(addresses(&all.settle(1000 * MS, true)), [(0xdef, false)]);
    }

    #[test]
    fn the_oldest_resets_and_mappings_are_forgotten() {
        let mut all = Matching::default();
        let most = MAX_OTHERS as u64;
        for at in 1..=most + 9 {
            let (from, to) = (at * 10 * MS, at * 10 * MS + 1);
            let call = call(at, false, from, to);
            all.called(MemoryCall { how: CallKind::Reset(0), free: true, ..call });
            all.called(MemoryCall { how: CallKind::Virtual, ..call });
        }
        // The oldest calls were forgotten, although all have the same size; the last ones were not.
        for at in [1, 2, most, most + 9] {
            all.recorded(row(at, false, at * 10 * MS));
            all.recorded(row(at, true, at * 10 * MS));
        }
        let left = [(1, false), (1, true), (2, false), (2, true)];
        assert_eq!(addresses(&all.settle(most * 20 * MS, true)), left);
    }

    #[test]
    fn calls_that_wait_too_long_for_cupti_are_counted() {
        let mut all = Matching::default();
        for at in 0..MAX_CALLS as u64 + 10 {
            all.called(call(at + 1, false, at, at));
        }
        assert_eq!((all.waiting, all.found.only_hooks), (MAX_CALLS, 10));
    }
}
