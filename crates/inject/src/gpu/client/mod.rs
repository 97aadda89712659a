//! The job's own profiler beside tprof (torch.profiler, cupti-python, Proton): CUPTI has one set
//! of activity callbacks per process, and the last client to register has them.
//!
//! The preloaded library intercepts the functions with which a client registers, enables and
//! flushes ([`functions`]), and passes them to [`calls`] here. The agent's callbacks stay: the
//! client's are kept in [`super::wants`], and [`super::deliver`] copies its records of each completed buffer
//! into buffers that it lends ([`super::lent`]), with their times on the clock that it chose ([`super::client_clock`]). What a
//! client sets that would change the agent's buffers is kept for it and not passed on.
//!
//! A client may begin before the driver starts, and before it loads the agent: it then has CUPTI
//! for itself, what it asks for is kept, and the agent goes on with that ([`early`]).
//!
//! A client that finds CUPTI's functions past the hooks takes the callbacks over. The flush
//! thread then has no buffers out that come back, and stops flushing.

pub mod calls;
pub mod early;
pub mod functions;
