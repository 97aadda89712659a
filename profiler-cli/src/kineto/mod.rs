//! `--kineto`: a window of PyTorch's own profiler, for data that callbacks cannot provide: the
//! Python functions around each operator, and modules by class.
//!
//! Kineto, the library within PyTorch, regularly asks a daemon on its machine whether to record.
//! During a run, tprof is this daemon, on a socket that belongs to the run. `message` defines the
//! protocol; `paths` the directories and variables that lead the job to the daemon; `clients` has
//! the processes that asked, and decides when each records; `server` is the thread that answers;
//! `import_window` imports a trace into a run next to the recorded one, on the same clock.
//! `outcome` describes the results at the end.

mod clients;
mod import_window;
mod message;
mod outcome;
mod paths;
mod server;

pub use clients::is_window;

pub use paths::HOME;
pub use server::Daemon;
