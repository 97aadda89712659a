//! The Python frames of a recorded allocation, which the allocating thread itself takes.
//!
//! The collector finds the interpreter and publishes its layout (`tprof_wire::python`). Frames are
//! only read in a thread that will return to the interpreter's code. Two functions of the
//! interpreter return the thread's state; each reads one variable. No other code of Python's is
//! called, and none of its memory is written.
//!
//! Python's memory is read in one of two ways:
//!
//! - *Directly*, if the thread holds Python's lock (or, without one, is attached) and has called
//!   the
//!   allocator in the ordinary way. The interpreter keeps a thread's state, its chain of frames and
//!   their code objects valid whenever it calls out, and whoever would free them (finalisation,
//!   another thread) needs the lock first.
//! - *Through the kernel*, which refuses memory that doesn't exist, in all other cases: the thread
//!   released the lock (a finalising interpreter frees the states of threads that wait for it), a
//!   signal handler interrupted Python at an arbitrary instruction, or the native stack could not
//!   be followed to its end, so that it is unknown which case holds. A thread that may not make
//!   system calls then takes no Python frames, which is counted.
//!
//! A frame is identified by a hash of its content (name, file, lines, instruction) and not by the
//! address of its code object, since other objects may follow at the same address. The thread that
//! first meets a hash records its name, file and line, so that they remain known when the process
//! is gone.
//!
//! - At most 192 frames are taken. Names lose what follows their first 1,024 bytes, paths what
//!   precedes their last 2,048.
//! - Two pieces of code count as one if name, file, first line, instruction and line table are
//!   equal. Of texts longer than 256 bytes, 128 bytes at either end are compared.
//! - Before 3.12, a thread that runs a second interpreter without the lock shows the functions of
//!   the first.
//! - The interpreter's own code, which has no name, is left out. If `_PyEval_EvalFrameDefault`
//!   can't
//!   be recognised, Python frames follow the native ones.

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
