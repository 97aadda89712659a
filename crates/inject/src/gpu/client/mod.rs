//! The job's own profiler beside tprof (torch.profiler, cupti-python, Proton). CUPTI has one set of
//! activity callbacks per process, and uses those of the last client to register.
//!
//! The preloaded library intercepts the functions with which a client registers, enables and
//! flushes ([`functions`]), and passes the calls to [`calls`] here. The agent's callbacks stay
//! registered, and the client's are kept in [`super::wants`]. [`super::deliver`] copies the
//! client's records of each completed buffer into buffers that the client lends ([`super::lent`]),
//! with times on the clock that the client chose ([`super::client_clock`]). Settings of a client
//! that would change the agent's buffers are stored for it and not passed on.
//!
//! A client may begin before the driver starts and loads the agent. It then has CUPTI for itself;
//! its settings are stored, and the agent continues with them ([`early`]).
//!
//! A client that bypasses the hooks to reach CUPTI's functions takes the callbacks over. No buffer
//! of the agent's comes back then, and the flush thread stops flushing.
//!
//! Which records are copied depends on their times, to within a nanosecond of the call that enabled
//! the kind; CUPTI itself goes by the call that started the work. Records of kinds without times
//! are copied or not with the buffer that they are in. A client also gets records of the overhead
//! that tprof's own kinds cause (`CUPTI_ACTIVITY_KIND_OVERHEAD`). If three flushes bring nothing
//! back, the agent flushes less and less often, down to once in 8 s. Its kinds stay enabled, since
//! some may be the client's.

pub mod calls;
pub mod early;
pub mod functions;
