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
//!
//! Copies go by the times of records, to within a nanosecond of the call that enabled the kind;
//! CUPTI itself goes by the call that started the work. Records of kinds without times follow the
//! buffer that they are in. A client also gets records of what tprof's own kinds cost
//! (`CUPTI_ACTIVITY_KIND_OVERHEAD`). If three flushes bring nothing back, the agent flushes less
//! and less often, down to once in 8 s; its kinds stay enabled, since some may be the client's.

pub mod calls;
pub mod early;
pub mod functions;
