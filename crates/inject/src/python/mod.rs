//! Takes the Python frames of a recorded allocation or call, on the thread that makes it.
//!
//! The collector finds the interpreter and publishes its layout (`tprof_wire::python`). Frames are
//! only read on a thread that will return to the interpreter's code. Two functions of the
//! interpreter return the thread's state; each of them reads one variable. tprof calls no other
//! code of Python's, and never writes its memory.
//!
//! Python's memory is read in one of two ways:
//!
//! - *Directly*, if the thread holds the GIL (in builds without one, is attached) and called the
//!   allocator in the ordinary way. The interpreter keeps a thread's state, its chain of frames and
//!   their code objects valid whenever it calls other code. Anything that would free them
//!   (finalisation, another thread) needs the GIL first.
//! - *Through the kernel*, which refuses memory that doesn't exist, in all other cases. The thread
//!   may have released the GIL; then a finalising interpreter frees the states of threads that wait
//!   for it. Or a signal handler interrupted Python at an arbitrary instruction. Or the native
//!   stack could not be followed to its end, so that it isn't known which case holds. A thread that
//!   may not make system calls then takes no Python frames, which is counted.
//!
//! A hash of its content (name, file, lines, instruction) identifies a frame. The address of its
//! code object doesn't, since another object may later have the same address. The thread that first
//! meets a hash records the frame's name, file and line, so that they are known after the process
//! has ended.
//!
//! - At most 192 frames are taken. Of a name only the first 1,024 bytes are recorded, of a path
//!   only the last 2,048.
//! - Two pieces of code count as one if name, file, first line, instruction and line table are
//!   equal. Of texts longer than 256 bytes, 128 bytes at either end are compared.
//! - Before 3.12, a thread that runs a second interpreter without the GIL shows the functions of
//!   the first one.
//! - The interpreter's own code, which has no name, is left out. If `_PyEval_EvalFrameDefault`
//!   isn't recognised, Python frames come after all native ones.

mod bytes;
mod capture;
mod define;
mod interpreter;
mod key;
mod memory;
mod scratch;

pub(crate) use capture::{ended, take};
pub(crate) use define::define;
pub use define::prepare;
pub use interpreter::{attached, unloaded};
pub(crate) use scratch::Scratch;
