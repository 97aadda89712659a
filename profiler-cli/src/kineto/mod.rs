//! `--kineto`: a window of PyTorch's own profiler, for what callbacks cannot give: Python's
//! functions around each operator, and modules by class.
//!
//! Kineto, the library within PyTorch, asks a daemon on its machine now and then whether it is to
//! record. For the length of a run tprof is that daemon, on a socket of the run's own: `message`
//! is what crosses it, `paths` the directories and variables that lead the job there, `clients`
//! who asked and is to record when, `server` the thread that answers, `import_window` how a trace that came
//! is put beside the run, on the run's clock. `outcome` has what is stated at the end.

mod clients;
mod import_window;
mod message;
mod outcome;
mod paths;
mod server;

pub use clients::is_window;

pub use paths::HOME;
pub use server::Daemon;
