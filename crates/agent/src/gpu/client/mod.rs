//! Serves the job's own profiler (torch.profiler, cupti-python, Proton) while tprof uses CUPTI,
//! since CUPTI has one set of activity callbacks per process and uses those that were registered
//! last.
//!
//! The preloaded library intercepts the functions with which a client registers, enables and
//! flushes ([`mod@tprof_inject::cupti_functions`]), and passes the calls to [`calls`] here. The
//! agent's callbacks stay registered, and the client's are stored in [`super::wants`]. From each completed buffer,
//! [`super::deliver`] copies the client's records into buffers that the client lends
//! ([`super::lent`]). Their times are converted to the clock that the client chose
//! ([`super::client_clock`]). Settings of a client that would change the agent's buffers are stored
//! and not passed on.
//!
//! A client may begin before the driver starts and loads the agent. Then it uses CUPTI alone; its
//! settings are stored, and the agent continues with them ([`early`]).
//!
//! If a client reaches CUPTI's functions without the hooks, it takes over the callbacks. Then the
//! agent's buffers no longer come back. After three flushes without a buffer, the agent flushes
//! less and less often, down to once in 8 s. Its kinds stay enabled, since some may be the
//! client's.
//!
//! Which records are copied depends on their times, to within a nanosecond of the call that enabled
//! the kind. CUPTI itself goes by the call that started the work. Records of kinds without times
//! are copied or not together with the buffer that they are in. A client also gets records of the
//! overhead that tprof's own kinds cause (`CUPTI_ACTIVITY_KIND_OVERHEAD`).

pub mod calls;
pub mod early;
pub mod intercepted;
