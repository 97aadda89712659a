//! `--kineto`: a window of PyTorch's own profiler, for data that callbacks cannot provide: the
//! Python functions around each operator, and modules by class.
//!
//! Kineto, the library within PyTorch, regularly asks a daemon on its machine whether to record.
//! For the length of a run tprof is that daemon, on a socket of the run's own. `message` defines
//! the protocol, `paths` the directories and variables that lead the job there, `clients` who asked
//! and when each is to record, `server` the thread that answers, and `import_window` how a trace is
//! imported next to the run, on the run's clock. `outcome` holds what is stated at the end.

mod clients;
mod import_window;
mod message;
mod outcome;
mod paths;
mod server;

pub use clients::is_window;

pub use paths::HOME;
pub use server::Daemon;
