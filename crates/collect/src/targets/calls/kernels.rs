//! Adds the names of kernels to the rows of calls that launch them. Only the first thread that
//! launches a kernel records its name, and rings are read one after the other. So the rows of
//! launches wait until the names from all rings are known.

use super::words::launch_arguments;
use std::collections::HashMap;
use tprof_symbols::demangle;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;

/// A launch of a kernel, as its hook recorded it.
#[derive(Clone, Copy, Debug)]
pub struct Launched {
    /// The call's row.
    pub row: Span,
    /// The kernel's stub or handle.
    pub kernel: u64,
    /// The handle of the stream that the caller passed.
    pub stream: u64,
    /// The function's number.
    pub number: u32,
}

/// Kernel names, and the launches that wait for them.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Names by stub or handle.
    names: HashMap<u64, String>,
    launched: Vec<Launched>,
    /// Arguments that are stored as names in the file already, by kernel and stream.
    arguments: HashMap<(u64, u64), NameId>,
}

impl Kernels {
    /// Adds a launch of a kernel.
    pub fn launched(&mut self, launch: Launched) {
        self.launched.push(launch);
    }

    /// Sets the name of the kernel with this stub or handle, for launches that are written from now
    /// on.
    pub fn name(&mut self, kernel: u64, name: &str) {
        self.names.insert(kernel, demangle(name));
        self.arguments.clear();
    }

    /// Returns the name of a kernel; empty if it is unknown.
    pub fn name_of(&self, kernel: u64) -> &str {
        self.names.get(&kernel).map_or("", String::as_str)
    }

    /// Returns the number of launches that wait.
    pub fn len(&self) -> usize {
        self.launched.len()
    }

    /// Returns and removes the waiting launches, with the names of their kernels as far as they are
    /// known.
    pub fn rows(&mut self, writer: &mut TraceWriter) -> Vec<Launched> {
        let named = |launch: Launched| {
            let Launched { row, kernel, stream, .. } = launch;
            let args = *self.arguments.entry((kernel, stream)).or_insert_with(|| {
                let text = launch_arguments(self.names.get(&kernel).map(String::as_str), stream);
                text.map_or(NameId(0), |text| writer.name(&text))
            });
            Launched { row: Span { args, ..row }, ..launch }
        };
        self.launched.drain(..).map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::TraceFile;

    #[test]
    fn a_launch_has_its_kernels_name_whichever_record_is_read_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
        let mut kernels = Kernels::default();
        let launch = |start_ns, kernel, stream| Launched {
            row: Span { start_ns, ..Span::default() },
            kernel,
            stream,
            number: 0,
        };
        kernels.launched(launch(1, 0x10, 0));
        kernels.launched(launch(2, 0x10, 0x7f));
        kernels.launched(launch(3, 0x20, 0));
        kernels.name(0x10, "_Z4reluPfi");
        let mut rows = kernels.rows(&mut writer);
        // A library was unloaded, and another one was loaded at its address.
        kernels.name(0x10, "_Z3addPff");
        kernels.launched(launch(4, 0x10, 0));
        rows.extend(kernels.rows(&mut writer));
        assert_eq!(kernels.len(), 0);
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let args: Vec<&str> = rows.iter().map(|launch| file.name(launch.row.args)).collect();
        assert_eq!(
            args,
            [
                r#"{"kernel":"relu(float*, int)"}"#,
                r#"{"kernel":"relu(float*, int)","stream":"0x7f"}"#,
                "",
                r#"{"kernel":"add(float*, float)"}"#
            ]
        );
    }
}
