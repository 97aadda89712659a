//! Builds small traces for tests. They are written to a real file and read back.

use tempfile::TempDir;
use tprof_trace::model::{
    Collective, DeviceAllocation, DeviceSpan, Kernel, MemoryCopy, NameId, Span, SpanKind,
    Synchronization,
};
use tprof_trace::{TraceFile, TraceHeader, TraceWriter};

/// A trace that a test is writing.
pub(crate) struct Fixture {
    dir: TempDir,
    pub writer: TraceWriter,
    pub spans: Vec<Span>,
    pub kernels: Vec<Kernel>,
    pub copies: Vec<MemoryCopy>,
    pub synchronizations: Vec<Synchronization>,
    pub device_spans: Vec<DeviceSpan>,
    pub collectives: Vec<Collective>,
    pub allocations: Vec<DeviceAllocation>,
}

impl Fixture {
    /// Creates an empty trace of rank 0.
    pub fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let header = TraceHeader { rank: Some(0), ..TraceHeader::default() };
        let writer = TraceWriter::create(&dir.path().join("rank-0.tprof"), &header).unwrap();
        Fixture {
            dir,
            writer,
            spans: Vec::new(),
            kernels: Vec::new(),
            copies: Vec::new(),
            synchronizations: Vec::new(),
            device_spans: Vec::new(),
            collectives: Vec::new(),
            allocations: Vec::new(),
        }
    }

    /// Adds a name and returns its id.
    pub fn name(&mut self, text: &str) -> NameId {
        self.writer.name(text)
    }

    /// Adds a span; `name` replaces the name in the row.
    pub fn span(&mut self, row: Span, name: &str) {
        let name = self.name(name);
        self.spans.push(Span { name, ..row });
    }

    /// Adds a runtime call that launches work, on the thread with the same index as the process.
    pub fn call(
        &mut self,
        process: u32,
        start_ns: u64,
        duration_ns: u64,
        name: &str,
        correlation: u64,
    ) {
        let row = Span {
            start_ns,
            duration_ns,
            process,
            thread: process,
            kind: SpanKind::Runtime,
            correlation: Some(correlation),
            ..Span::default()
        };
        self.span(row, name);
    }

    /// Adds a kernel to the file.
    pub fn kernel(&mut self, row: Kernel, name: &str) {
        let name = self.name(name);
        self.kernels.push(Kernel { name, ..row });
    }

    /// Adds a copy or a memset.
    pub fn copy(&mut self, row: MemoryCopy, name: &str) {
        let name = self.name(name);
        self.copies.push(MemoryCopy { name, ..row });
    }

    /// Adds a collective of process 0, with the kernel of this correlation.
    pub fn collective(&mut self, correlation: u64, name: &str) {
        let name = self.name(name);
        let correlation = Some(correlation);
        self.collectives.push(Collective { name, correlation, ..Collective::default() });
    }

    /// Writes the file and opens it.
    pub fn finish(mut self) -> TraceFile {
        self.writer.write(&mut self.spans).unwrap();
        self.writer.write(&mut self.kernels).unwrap();
        self.writer.write(&mut self.copies).unwrap();
        self.writer.write(&mut self.synchronizations).unwrap();
        self.writer.write(&mut self.device_spans).unwrap();
        self.writer.write(&mut self.collectives).unwrap();
        self.writer.write(&mut self.allocations).unwrap();
        let path = self.writer.path().to_path_buf();
        self.writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        // The open file can still be read after its directory is removed.
        drop(self.dir);
        file
    }
}
