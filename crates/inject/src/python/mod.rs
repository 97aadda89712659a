//! Python's frames of a recorded allocation, taken by the thread that allocates.
//!
//! The collector finds the interpreter and publishes where things lie (`tprof_wire::python`).
//! Only a thread that will return to the interpreter's code is read. Its state is
//! what two functions of the interpreter return that each read one variable; no other
//! code of Python's is called, and nothing of it is written.
//!
//! How its memory is read:
//!
//! - *As it is*, where the thread holds Python's lock (or, without one, is attached) and
//!   called the allocator in the ordinary way. The interpreter keeps a thread's state, its
//!   chain of frames and their code objects whole whenever it calls out, and a thread that would
//!   take them away (finalisation, another thread) needs the lock first.
//! - *Through the kernel*, which refuses what is not there, in all other cases: the lock
//!   was given up (a finalising interpreter frees the states of threads that wait for it),
//!   a signal handler interrupted Python in the middle of something, or the native stack
//!   could not be followed to its end, so that it is unknown. A thread that may make no
//!   system call takes no Python frames then, which is counted.
//!
//! A frame is known by a hash of its content (name, file, lines, instruction), not by
//! where its code object lies: objects are freed, and others come to lie there. Name, file
//! and line are written once for each hash, by the thread that met it, so that they are
//! there when the process is gone.
//!
//! - At most 192 frames. Names are cut after 1,024 bytes, paths before their last 2,048.
//! - Two pieces of code are one if name, file, first line, instruction and line table are equal.
//!   Of texts longer than 256 bytes, 128 at either end are compared.
//! - Before 3.12, a thread that runs a second interpreter without the lock shows the functions of
//!   the first.
//! - Code without a name from the interpreter is left out. Where `_PyEval_EvalFrameDefault` can't
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
