//! Names the kernels that calls launch: threads' rings are read one by one, and only the first
//! thread that launches a kernel records its name, so the rows of launches wait for the names.

use super::words::launch_arguments;
use crate::symbols::demangle::demangle;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;

/// See the module.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Names by stub or handle.
    names: HashMap<u64, String>,
    /// Rows with kernel and stream.
    launched: Vec<(Span, u64, u64)>,
    /// Arguments that were written before, by kernel and stream.
    arguments: HashMap<(u64, u64), NameId>,
}

impl Kernels {
    /// A program launched a kernel in a stream.
    pub fn launched(&mut self, row: Span, kernel: u64, stream: u64) {
        self.launched.push((row, kernel, stream));
    }

    /// The name of a stub's or handle's kernel, from now on.
    pub fn name(&mut self, kernel: u64, name: &str) {
        self.names.insert(kernel, demangle(name));
        self.arguments.clear();
    }

    /// Rows that wait.
    pub fn len(&self) -> usize {
        self.launched.len()
    }

    /// The rows that waited, with the names of their kernels where these are known.
    pub fn rows(&mut self, writer: &mut TraceWriter) -> Vec<Span> {
        let named = |(row, kernel, stream): (Span, u64, u64)| {
            let args = *self.arguments.entry((kernel, stream)).or_insert_with(|| {
                let text = launch_arguments(self.names.get(&kernel).map(String::as_str), stream);
                text.map_or(NameId(0), |text| writer.name(&text))
            });
            Span { args, ..row }
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
        let row = |start_ns| Span { start_ns, ..Span::default() };
        kernels.launched(row(1), 0x10, 0);
        kernels.launched(row(2), 0x10, 0x7f);
        kernels.launched(row(3), 0x20, 0);
        kernels.name(0x10, "_Z4reluPfi");
        let mut rows = kernels.rows(&mut writer);
        // A library at the place of one that was unloaded.
        kernels.name(0x10, "_Z3addPff");
        kernels.launched(row(4), 0x10, 0);
        rows.extend(kernels.rows(&mut writer));
        assert_eq!(kernels.len(), 0);
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let args: Vec<&str> = rows.iter().map(|row| file.name(row.args)).collect();
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
