//! Answers processes that attach and clients that control the run, and tells the engine when a
//! process ends.

use super::configure::{TargetClock, configure};
use super::nccl_log;
use super::owners::{itt_owner, nccl_owner, nvtx_owner};
use crate::config::{Activity, Config, MemMode, NcclEvent, StackMode};
use crate::directory::socket::SessionSocket;
use crate::engine::inbox::Event;
use crate::engine::prebuilt_tables::PrebuiltTables;
use crate::output::module_names::why_not;
use crate::output::processes::Unanswered;
use crate::output::ranks::Rank;
use crate::session::answerer::Answerer;
use crate::session::control;
use crate::shared::{Region, SessionMemory};
use crate::targets::attached::{Attached, NcclLog};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::Sender;
use std::time::Duration;
use tprof_os::maps::read_code_maps;
use tprof_os::proc;
use tprof_os::sys;
use tprof_os::variables::Variables;
use tprof_os::wall_clock;
use tprof_symbols::elf;
use tprof_wire::handshake::{ExecArguments, Hello, Role, Welcome, hello_flags};

/// Longest time that a client may take to send its `Hello`.
const HELLO_TIME: Duration = Duration::from_secs(1);

/// The parts that the server needs to answer its clients.
pub struct Server {
    /// The listening socket.
    pub listener: OwnedFd,
    /// The state of the session's socket, which the engine also uses.
    pub socket: Arc<SessionSocket>,
    /// Options of the run.
    pub config: Config,
    /// The session's shared page, which every process receives.
    pub session: Arc<SessionMemory>,
    /// Unwind tables for programs that asked for them before.
    pub prebuilt: Arc<PrebuiltTables>,
    /// File descriptor of the session's page, which attaching processes map.
    pub session_fd: OwnedFd,
    /// File descriptor of the unwind tables, which attaching processes map.
    pub tables_fd: OwnedFd,
    /// The clock by which targets stamp their records.
    pub targets_clock: TargetClock,
    /// The channel to the engine.
    pub events: Sender<Event>,
    /// The way to answer requests.
    pub answerer: Arc<Answerer>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
}

const LISTENER: u64 = 0;

/// Images that have attached and whose end the server has not noticed yet.
struct WatchedImages {
    poller: sys::Poller,
    /// Number of the next image.
    next: u64,
    /// Pidfds of the images whose end the kernel will report.
    watched: HashMap<u64, OwnedFd>,
    /// Number of the newest image of each pid.
    newest: HashMap<u32, u64>,
    /// Images of which only the CUPTI agent has attached so far. In a forked child, hooks and agent
    /// attach in the order of their first events.
    agents: HashSet<u64>,
}

impl WatchedImages {
    fn new(poller: sys::Poller) -> WatchedImages {
        let (watched, newest, agents) = Default::default();
        WatchedImages { poller, next: LISTENER + 1, watched, newest, agents }
    }

    /// Asks the kernel to report the end of a process, and returns whether the kernel will.
    fn watch(&mut self, image: u64, pid: u32) -> bool {
        let Ok(fd) = sys::pidfd(pid) else { return false };
        let is_watched = self.poller.add(&fd, image, true).is_ok();
        if is_watched {
            self.watched.insert(image, fd);
        }
        is_watched
    }
}

impl Server {
    /// Serves clients until `stop` is set.
    pub fn run(self) {
        let Ok(poller) = sys::Poller::new() else { return };
        if poller.add(&self.listener, LISTENER, false).is_err() {
            return;
        }
        let mut images = WatchedImages::new(poller);
        // Number of the last closing of the socket after which all waiting clients were accepted.
        let mut accepted_all = None;
        // A region that is created in advance, so that no attaching process has to wait for its
        // creation.
        let mut spare = None;
        let mut message = vec![0; ExecArguments::MESSAGE];
        while !self.stop.load(Acquire) {
            if spare.is_none() {
                spare = Region::new().ok();
            }
            // The closing must be read before the waiting clients are accepted. Once it is set, no
            // process can find the socket, so the clients that wait now are the last.
            let closing = self.socket.closing();
            // Ends are handled before new clients, and only one client at a time. If a process was
            // reaped before another one connected, the engine then sees the end before the
            // beginning.
            let ready = images.poller.wait(Duration::from_millis(100));
            for token in ready.iter().filter(|token| **token != LISTENER) {
                self.ended(*token, &mut images);
            }
            if !ready.contains(&LISTENER) && closing.is_none() {
                continue;
            }
            let accepted = sys::accept(&self.listener);
            let is_new = closing.filter(|_| closing != accepted_all);
            if let Some(turn) = is_new.filter(|_| matches!(accepted, Ok(None))) {
                accepted_all = closing;
                self.send(Event::AllAccepted(turn));
            }
            let Ok(Some(client)) = accepted else { continue };
            if closing.is_some() && closing == accepted_all {
                continue; // gets no answer, and looks for another collector
            }
            if let Some((attached, region)) =
                self.receive(&client, images.next, &mut spare, &mut message)
            {
                self.attach(attached, &client, &region, &mut images);
            }
        }
    }

    /// Handles the kernel's report that an image has ended.
    fn ended(&self, image: u64, images: &mut WatchedImages) {
        let Some(fd) = images.watched.remove(&image) else { return };
        let pid = images.newest.iter().find(|(_, newest)| **newest == image).map(|(pid, _)| *pid);
        let status = sys::exit_status(&fd).or_else(|| pid.and_then(proc::zombie_status));
        let (time_ns, pidfd) = (sys::monotonic_ns(), Some(fd));
        self.send(Event::Ended { image, time_ns, status, pidfd, exec: false });
        images.newest.retain(|_, newest| *newest != image);
        images.agents.remove(&image);
    }

    /// Tells the engine about a process that attaches, and sends the process its answer.
    fn attach(
        &self,
        mut attached: Attached,
        client: &OwnedFd,
        region_fd: &OwnedFd,
        images: &mut WatchedImages,
    ) {
        let agent = attached.hello.flags & hello_flags::AGENT != 0;
        let forked = attached.hello.flags & hello_flags::FORKED != 0;
        if attached.hello.flags & hello_flags::LATE != 0 {
            self.send(Event::Answered { pid: attached.pid, agent });
        }
        let late = Unanswered {
            pid: attached.pid,
            parent: attached.parent,
            agent,
            command: attached.command.clone(),
            time_ns: attached.time_ns,
        };
        let joins = |image: &u64| agent || forked && images.agents.contains(image);
        if let Some(image) = images.newest.get(&attached.pid).copied().filter(joins) {
            if !agent {
                images.agents.remove(&image);
            }
            let region = Arc::clone(&attached.region);
            self.send(Event::RegionJoined { image, region, agent });
            return self.admit(client, region_fd, late);
        }
        // The engine must know of the process before the process continues. The process may end at
        // once, and then the engine could read its parent's record of the end first.
        let image = images.next;
        images.next += 1;
        attached.watched = images.watch(image, attached.pid);
        if agent {
            images.agents.insert(image);
        }
        let has_stacks = !agent && self.has_native_stacks();
        let awaited = has_stacks.then(|| self.prebuilt.awaited(&attached.exe)).flatten();
        if !forked || awaited.is_some() {
            // The mappings are read while the process waits for its answer, because a short process
            // may have ended later.
            let maps = read_code_maps(attached.pid).unwrap_or_default();
            if let Some(finds_rows) = awaited {
                let (pid, region) = (attached.pid, &attached.region);
                attached.modules = self.prebuilt.publish(pid, &maps, region, finds_rows);
            }
            // A forked child inherits its parent's mappings.
            attached.begun_with = if forked { Vec::new() } else { maps };
        }
        let old = images.newest.insert(attached.pid, image);
        self.send(Event::Attached(Box::new(attached)));
        if let Some(image) = old.filter(|_| !forked) {
            images.watched.remove(&image);
            let time_ns = sys::monotonic_ns();
            self.send(Event::Ended { image, time_ns, status: None, pidfd: None, exec: true });
        }
        self.admit(client, region_fd, late);
    }

    /// Whether a process needs only unwind tables for its first stack. Stacks with Python's
    /// functions also need an interpreter, which is searched only when a process asks.
    fn has_native_stacks(&self) -> bool {
        matches!(self.config.stacks, StackMode::Auto | StackMode::Dwarf)
    }

    /// Sends a target its answer, so that it continues. If sending fails, the target has ended or
    /// stopped waiting.
    fn admit(&self, client: &OwnedFd, region: &OwnedFd, late: Unanswered) {
        let fds = [self.session_fd.as_raw_fd(), region.as_raw_fd(), self.tables_fd.as_raw_fd()];
        if sys::send(client, &Welcome::new(true).to_bytes(), &fds).is_err() {
            self.unanswered_client(late);
        }
    }

    /// Reports a process that has stopped waiting for its answer. It may connect again.
    fn unanswered_client(&self, late: Unanswered) {
        self.send(Event::Unanswered(late));
        self.socket.touch();
    }

    fn send(&self, event: Event) {
        let waits = matches!(event, Event::Attached(_) | Event::Ended { .. });
        let _ = self.events.send(event);
        if !waits || self.session.eager.load(Acquire) {
            self.session.wake();
        }
    }

    /// Receives the first message of a client and serves the client. If it is a process that
    /// attaches, returns it and the file of its region.
    fn receive(
        &self,
        client: &OwnedFd,
        image: u64,
        spare: &mut Option<(Region, OwnedFd)>,
        message: &mut [u8],
    ) -> Option<(Attached, OwnedFd)> {
        let (pid, uid) = sys::peer(client).ok()?;
        if uid != sys::user() && uid != 0 {
            return None; // neither this user nor root
        }
        sys::set_timeout(client, HELLO_TIME).ok()?;
        let len = sys::receive(client, message).ok()?;
        let (hello, rest) = message.get(..len)?.split_at_checked(Hello::BYTES)?;
        let hello = Hello::from_bytes(hello)?;
        if !hello.is_of_this_version() {
            let _ = sys::send(client, &Welcome::new(false).to_bytes(), &[]);
            if hello.is_of_another_version() {
                self.send(Event::Refused { pid, version: hello.version });
            }
            return None;
        }
        if hello.role == Role::Control as u32 {
            if let Ok(client) = client.try_clone() {
                self.control(client);
            }
            return None;
        }
        let began = match hello.flags & hello_flags::BEGAN_WITH {
            0 if rest.is_empty() => None,
            0 => return None,
            _ => Some(ExecArguments::from_bytes(rest)?),
        };
        let command = began
            .map_or_else(|| proc::words_of(pid), |began| proc::split_arguments(began.arguments));
        let stat = proc::Stat::of(pid);
        let parent = stat.as_ref().and_then(proc::Stat::parent).unwrap_or(hello.parent);
        let agent = hello.flags & hello_flags::AGENT != 0;
        if sys::is_hung_up(client) {
            let time_ns = sys::monotonic_ns();
            self.unanswered_client(Unanswered { pid, parent, agent, command, time_ns });
            return None;
        }
        let (region, region_fd) = spare.take().or_else(|| Region::new().ok())?;
        configure(&region, &self.config, self.targets_clock, agent);
        match self.session.page().off.load(Acquire) {
            0 => {}
            reasons => region.header().stop_session(reasons),
        }
        let environ = began.map_or_else(
            || Cow::Owned(proc::environment_of(pid)),
            |began| Cow::Borrowed(began.environment),
        );
        let why_not_hooked = self.config.modules.then(|| why_not(&command, &environ));
        let environ = Variables::of(&environ);
        let attached = Attached {
            image,
            pid,
            parent,
            cpu_ns: stat.as_ref().and_then(proc::Stat::cpu_ns).unwrap_or(0),
            resident_bytes: stat.as_ref().and_then(proc::Stat::resident_bytes),
            hello,
            region: Arc::new(region),
            command,
            exe: proc::exe_of(pid),
            working_directory: if self.config.io { proc::working_directory_of(pid) } else { None },
            program: Some(format!("/proc/{pid}/exe"))
                .filter(|_| self.config.memory() != MemMode::Off)
                .and_then(|path| elf::open(Path::new(&path)).ok()),
            rank: Rank::of(&environ),
            nvtx_owner: nvtx_owner(pid, &environ, self.config.redact)
                .filter(|_| self.config.activities.contains(&Activity::Nvtx)),
            itt_owner: itt_owner(pid, &environ, self.config.redact)
                .filter(|_| self.config.activities.contains(&Activity::Nvtx)),
            nccl_owner: nccl_owner(&environ, self.config.redact)
                .filter(|_| self.config.activities.contains(&Activity::Comm)),
            nccl_log: NcclLog {
                path: nccl_log::path(&environ, pid, hello.pid)
                    .filter(|_| self.config.activities.contains(&Activity::Comm)),
                is_wanted: self.config.nccl.contains(&NcclEvent::Log),
            },
            has_faketime: environ.value("LD_PRELOAD").is_some_and(wall_clock::is_faketime),
            why_not_hooked,
            watched: false,
            time_ns: sys::monotonic_ns(),
            begun_with: Vec::new(),
            modules: None,
        };
        Some((attached, region_fd))
    }

    /// Serves a control client on a thread of its own, so that attaching processes don't wait for
    /// it.
    fn control(&self, client: OwnedFd) {
        let answerer = Arc::clone(&self.answerer);
        let answer = move || {
            let Some(request) = control::receive(&client) else { return };
            if let Some(answer) = answerer.answer(&request) {
                control::reply(&client, &answer);
            }
        };
        // If no thread can be started, the connection is closed, which tells the client that it
        // failed.
        let _ = std::thread::Builder::new().name("tprof-control".to_owned()).spawn(answer);
    }
}
