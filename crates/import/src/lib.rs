//! Imports recordings of other tools into a tprof run. These are Kineto and Chrome traces (JSON,
//! plain or gzipped, one file or a directory of ranks), memory snapshots of PyTorch, and logs of
//! `torch.compile`. [`flight_recorder`] reads dumps of PyTorch's Flight Recorder, which become no run
//! but a verdict.
//!
//! [`import`] streams: memory contains one event, one block of rows per table, and the distinct
//! names. Only a snapshot is in memory as a whole. Data that the run can't represent is counted by
//! kind and listed in the run. Import is a separate crate so that the collector, which runs next to
//! every job, links no decompressor. It also proves that the trace model suffices for other
//! sources.
//!
//! - A trace names a kernel's device but not its process. So all device work of a file belongs to
//!   the file's first host process, and traces of several jobs that were merged into one file can't
//!   be separated.
//! - Times stay on the clock of their trace. The files of one run should either all count from
//!   1970, or none of them.
//! - Kineto writes a kernel's static and dynamic shared memory as one number, which is stored as
//!   dynamic.
//! - A collective without arguments (before PyTorch 2.2 or so) has the sizes of its annotation's
//!   tensors, but no communicator and no sequence number. A collective of which only the kernel was
//!   recorded has only a name. If neither the kernel's name nor an operator shows that a kernel
//!   communicates, it counts as compute.
//! - Before PyTorch 1.11, annotations and operators share a category. Ranges that PyTorch itself
//!   names (steps, DataLoader, optimizer, `nccl:…`) are imported as annotations, but a job's own
//!   `record_function` is imported as an operator. Before 1.10, memory events have no addresses.
//! - Names of MTIA, XPU, HPU and PrivateUse1 calls don't reveal which calls wait, copy or allocate,
//!   so all of them count as launches.
//! - The following is not stored, but counted: asynchronous events (`b`, `e`, `n`), snapshots (`N`,
//!   `O`, `D`), samples (`P`) without a frame, thread and arguments of instants, arguments of a
//!   span's end if its beginning has some, `Record function id`, and `Ev Idx` of Python functions
//!   and memory events. Names, and the rest of an event's arguments, are limited to 256 KiB.
//! - A killed tprof leaves `tprof-import-…` in `TMPDIR` until the next tprof of the same user
//!   removes it.
//!
//! The importer was fuzzed for an hour (libFuzzer with AddressSanitizer, 342,000 inputs of up to 32
//! KiB). No input crashed it, took over 20 s, or needed over 2 GB. Inputs that reached new code are
//! in `tests/corpus/found`. The reader of compile logs was fuzzed for 15 minutes (1.15 million
//! inputs). After the lines of a graph's nodes were added, it was fuzzed again (1.06 million
//! inputs). Neither run found an error.

mod builder;
mod categories;
mod comm;
mod compile_logs;
mod compiled;
mod content;
mod cursor;
mod device;
mod document;
mod error;
mod event;
pub mod flight_recorder;
mod frames;
mod group;
mod implausible;
mod imported_file;
mod inputs;
mod instants;
mod key;
mod kinds;
mod losses;
mod names;
mod number;
mod output;
mod pairs;
mod pickle;
mod rank;
mod run;
mod run_period;
mod samples;
mod snapshot;
mod source;
mod spans;
mod stacks;
mod stream_overlaps;
mod subdirectories;
mod text;
mod threads;
mod top_level;
mod window;

pub use content::packed_as;
pub use error::ImportError;
pub use run::{Imported, Options, Progress, import, is_foreign};
