//! Adds spans, steps, counters and allocations of a Rust program to the runs that tprof records.
//!
//! tprof observes a program from outside: `tprof run -- target/release/train`. With this crate, the
//! program names what it does, on the same clock as its allocations, samples and kernels. Without
//! tprof, each call is one load and one branch: nothing is written, and nothing is linked.
//!
//! ```
//! for step in 0..3 {
//!     tprof::step(step);
//!     let batch = {
//!         let _load = tprof::span!("load", batch = step);
//!         vec![1.0_f32; 1 << 10]
//!     };
//!     let loss = tprof::time("forward", || {
//!         tprof::work(2 * batch.len() as u64, tprof::Dtype::F32);
//!         batch.iter().map(|x| x * x).sum::<f32>()
//!     });
//!     tprof::gauge!("loss").set(loss);
//!     tprof::counter!("samples").add(batch.len());
//! }
//! ```
//!
//! It records on Linux on x86-64. On other platforms, with the feature `off`, and in a statically
//! linked program, all calls do nothing. If tprof is not there but `NVTX_INJECTION64_PATH` names
//! another tool's library, as under `nsys profile`, spans, marks and steps go there as NVTX ranges.
//!
//! While recording, no call allocates, locks or makes a system call, except for the first call of a
//! thread and of a name, and when the buffer that tprof reads is full. All functions may be called
//! by every thread and in a forked child.

mod abi;
mod alloc;
mod allocation_counts;
mod category;
mod heap;
mod histogram;
#[cfg(feature = "macros")]
mod instrumented_future;
mod json;
mod macros;
mod measurements;
mod name;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri)))]
mod nvtx;
#[cfg(feature = "metrics")]
mod recorder;
mod recording;
mod report;
mod span;
#[cfg(feature = "tracing")]
mod subscriber;
mod table;
mod value;

pub use alloc::Alloc;
pub use category::Category;
pub use heap::{heap, heap_scope, Heap, HeapScope, ProcessHeap};
pub use histogram::histogram;
pub use measurements::{work, Address, Counter, Dtype, Gauge, Number, Pool};
pub use recording::{is_recording, mark, next_step, start_recording, step, stop_recording};
pub use report::{profile, Finding, Profile, Report};
pub use span::{complete, span, start, time, OpenSpan, Span};
pub use value::Value;

#[cfg(feature = "metrics")]
pub use recorder::{recorder, Recorder};
#[cfg(feature = "tracing")]
pub use subscriber::{layer, Layer};
/// Makes each call of a function a span: `#[tprof::instrument]` alone, or with the arguments of
/// [`span!`]. Needs the feature `macros`.
///
/// In an `async fn`, each poll is a span on the thread that polls, with the number of the call as
/// its argument `task`.
///
/// ```
/// #[tprof::instrument]
/// fn sum(numbers: &[u64]) -> u64 {
///     numbers.iter().sum()
/// }
///
/// #[tprof::instrument(category: tprof::Category::Io, "read", bytes = count)]
/// fn read(count: usize) -> std::io::Result<Vec<u8>> {
///     let mut all = vec![0; count];
///     std::io::Read::read_exact(&mut std::fs::File::open("/dev/zero")?, &mut all)?;
///     Ok(all)
/// }
///
/// #[tprof::instrument]
/// async fn both() -> std::io::Result<usize> {
///     Ok(read(3)?.len() + sum(&[1, 2]) as usize)
/// }
/// # assert_eq!(sum(&[1, 2]), 3);
/// # drop(both());
/// ```
#[cfg(feature = "macros")]
pub use tprof_macros::instrument;

#[cfg(feature = "macros")]
#[doc(hidden)]
pub use instrumented_future::Polled;
#[doc(hidden)]
pub use name::{joined, joined_bytes, Name};
#[doc(hidden)]
pub use recording::mark_at;
