//! Exports the function by which the agent finds the preloaded library's table of functions.

use tprof_inject::agent_link::{self, AgentLink};

/// Returns this library's table. libtprof_cupti.so calls this, since this library, and not the
/// agent, counts the steps and captures of the process.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_noticing() -> *const AgentLink {
    agent_link::table()
}
