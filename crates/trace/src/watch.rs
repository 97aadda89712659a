//! Lets another part see the rows that a writer gets, to add up what they mean while they are
//! recorded.

use crate::model::*;

/// Sees rows of some tables as they are given to a [`crate::TraceWriter`], whether or not the disk
/// takes them. Rows of a table come about in the order of time.
pub trait RowWatcher: Send {
    /// A name got its id. Each name comes before the rows that use it. Names of marks don't come.
    fn named(&mut self, id: NameId, text: &str);
    /// A mark was recorded, with the text of its name.
    fn marked(&mut self, row: &Mark, name: &str);
    /// A quantity was read.
    fn counted(&mut self, row: &Counter);
    /// A process image ended.
    fn ended(&mut self, process: ProcessIndex, end_ns: u64);
    /// A process has used so much CPU time at this time, ns.
    fn cpu_time(&mut self, process: ProcessIndex, time_ns: u64, cpu_ns: u64);
    /// Spans of host threads were recorded.
    fn spans(&mut self, rows: &[Span]);
    /// Kernels were recorded.
    fn kernels(&mut self, rows: &[Kernel]);
    /// Copies and memsets were recorded.
    fn copies(&mut self, rows: &[MemoryCopy]);
    /// Operations between ranks were recorded.
    fn collectives(&mut self, rows: &[Collective]);
    /// Returns the rows of figures that are complete at the time `now_ns`; all of them if nothing
    /// comes any more.
    fn figures(&mut self, now_ns: u64, is_last: bool) -> Vec<HistoryRow>;
    /// Returns the time of devices that came too late for its rows, ns.
    fn late_ns(&self) -> u64;
}
