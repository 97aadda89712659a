//! Fills in external ids. A row without an id of its own gets the id that its thread had pushed
//! when it made the row's call.

use tprof_trace::model::*;
use tprof_trace::{TraceFile, TraceRow};

/// External ids, by the process and the correlation of the call.
#[derive(Debug, Default)]
pub struct ExternalIds(Vec<(ProcessIndex, u64, u64)>);

/// Returns the rank of a kind in the order of preference. If a call has several ids, an operator's
/// id is used first, and an annotation's last.
fn preference(kind: ExternalKind) -> u8 {
    match kind {
        ExternalKind::Custom0 => 0,
        ExternalKind::Unknown => 1,
        ExternalKind::OpenAcc => 2,
        ExternalKind::Custom1 => 3,
        ExternalKind::Custom2 => 4,
    }
}

/// A row that may belong to a call. The row then has a process, a correlation, and a field for the
/// external id.
pub trait HasCallIds: TraceRow {
    /// Returns the process, the correlation and the field for the external id; `None` for a row
    /// without a call.
    fn call(&mut self) -> Option<(ProcessIndex, u64, &mut Option<u64>)> {
        None
    }
}

macro_rules! called {
    ($($row:ty)*) => {$(
        impl HasCallIds for $row {
            fn call(&mut self) -> Option<(ProcessIndex, u64, &mut Option<u64>)> {
                Some((self.process, self.correlation?, &mut self.external))
            }
        }
    )*};
}
called! { Span Kernel MemoryCopy Synchronization DeviceAllocation }
impl HasCallIds for DeviceSpan {}
impl HasCallIds for Collective {}
impl HasCallIds for ChannelWork {}
impl HasCallIds for Sample {}
impl HasCallIds for FlowPoint {}

impl ExternalIds {
    /// Reads all external ids of a file.
    pub fn of(trace: &TraceFile) -> ExternalIds {
        let mut rows: Vec<ExternalId> = trace.blocks().flatten().collect();
        rows.sort_by_key(|row| (row.process, row.correlation, preference(row.kind)));
        rows.dedup_by_key(|row| (row.process, row.correlation));
        ExternalIds(rows.into_iter().map(|row| (row.process, row.correlation, row.id)).collect())
    }

    /// Sets the external id of each row that has none to the id of its call.
    pub fn fill<R: HasCallIds>(&self, rows: &mut [R]) {
        if self.0.is_empty() {
            return;
        }
        for row in rows {
            let Some((process, correlation, external @ None)) = row.call() else { continue };
            let at = self.0.binary_search_by_key(&(process, correlation), |(p, c, _)| (*p, *c));
            *external = at.ok().map(|at| self.0[at].2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn rows_without_an_id_get_the_id_of_their_call() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let id = |correlation, kind, id| ExternalId { process: 1, correlation, kind, id };
        writer
            .write(&mut vec![
                id(7, ExternalKind::Custom1, 70),
                id(7, ExternalKind::Custom0, 71),
                id(8, ExternalKind::Custom2, 80),
            ])
            .unwrap();
        writer.finish().unwrap();
        let ids = ExternalIds::of(&TraceFile::open(&path).unwrap());
        let kernel = |process, correlation, external| Kernel {
            process,
            correlation,
            external,
            ..Kernel::default()
        };
        let mut rows = [
            kernel(1, Some(7), None),
            kernel(1, Some(8), None),
            kernel(1, Some(7), Some(5)),
            kernel(1, Some(9), None),
            kernel(0, Some(7), None),
            kernel(1, None, None),
        ];
        ids.fill(&mut rows);
        let got = rows.map(|row| row.external);
        assert_eq!(got, [Some(71), Some(80), Some(5), None, None, None]);
    }
}
