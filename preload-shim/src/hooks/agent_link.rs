//! What the agent, which hooks nothing, calls as it notices a range of NVTX.

use tprof_inject::agent_link::{self, AgentLink};

/// For libtprof_cupti.so: steps and captures of this process are counted here.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_noticing() -> *const AgentLink {
    agent_link::table()
}
