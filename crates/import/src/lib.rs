//! Imports traces of other tools into a tprof run: Kineto and Chrome JSON, plain or gzipped, as one
//! file or a directory of ranks; memory snapshots of PyTorch; and logs of `torch.compile`.
//!
//! [`import`] streams: memory holds one event, one block of rows per table, and the distinct names;
//! only a snapshot is in memory as a whole. Data that cannot be kept is counted by kind and listed
//! in the run. Import is a crate of its own so that the collector, which runs next to every job,
//! links no decompressor, and to prove that the trace model suffices for other sources.
//!
//! - A trace names a kernel's device, not its process: all device work of a file counts for its
//!   first host process. Traces of several jobs that were merged into one file can't be
//!   separated.
//! - Clocks stay as written. Files of one run should all count from 1970, or none of them.
//! - Static and dynamic shared memory of a kernel are one number, as in Kineto, and are kept as
//!   dynamic.
//! - A collective without arguments (before PyTorch 2.2 or so) has the sizes of its annotation's
//!   tensors, no communicator and no sequence number. A collective that is only a kernel has only
//!   its name; one of a library, without a known kernel name or operator, counts as compute.
//! - Before PyTorch 1.11 annotations and operators share a category: ranges that PyTorch names
//!   (steps, DataLoader, optimizer, `nccl:…`) are annotations, a job's own `record_function` is
//!   an operator. Before 1.10 memory has no addresses.
//! - Names of MTIA, XPU, HPU and PrivateUse1 calls don't reveal which wait, copy or allocate: all
//!   are launches.
//! - Not kept, and counted: asynchronous events (`b`, `e`, `n`), snapshots (`N`, `O`, `D`),
//!   samples (`P`) without a frame, thread and arguments of instants, arguments of a span's end
//!   if its beginning has some, `Record function id`, `Ev Idx` of Python functions and memory
//!   events. A name, and the rest of an event's arguments, has at most 256 KiB.
//! - A killed tprof leaves `tprof-import-…` in `TMPDIR` until the next tprof of that user removes
//!   it.
//!
//! The importer was fuzzed for an hour (libFuzzer with AddressSanitizer, 342,000 inputs of up to
//! 32 KiB): no crash, no input over 20 s, none over 2 GB. Inputs that reached new code are in
//! `tests/corpus/found`. The reader of compile logs was fuzzed for 15 minutes (1.15 million
//! inputs), and once more with the lines of a graph's nodes (1.06 million): nothing found.

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
