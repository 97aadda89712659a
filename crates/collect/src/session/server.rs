//! Answers processes that attach and people who control, and notices when a
//! process ends.

use crate::config::{Activity, Config, MemMode, OnFull, StackMode};
use crate::directory::socket::SessionSocket;
use crate::elf;
use crate::engine::ahead::Ahead;
use crate::engine::inbox::Event;
use crate::modules;
use crate::os::proc;
use crate::os::sys;
use crate::out::processes::Unanswered;
use crate::out::ranks;
use crate::session::control::{self, Reply};
use crate::shared::{Region, SessionMemory};
use crate::targets::attached::Attached;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tprof_wire::env;
use tprof_wire::handshake::{Hello, Role, Welcome, hello_flags};
use tprof_wire::region::{mem_mode, stack_mode};

/// How long a client may take to say hello.
const HELLO_TIME: Duration = Duration::from_secs(1);

/// What the server needs to answer.
pub struct Server {
    /// Listening socket.
    pub listener: OwnedFd,
    /// Whether others still find it.
    pub socket: Arc<SessionSocket>,
    /// Options.
    pub config: Config,
    /// SessionMemory page and its file.
    pub session: Arc<SessionMemory>,
    /// Tables for programs that are known to ask.
    pub ahead: Arc<Ahead>,
    /// File of the session page.
    pub session_fd: OwnedFd,
    /// File of the unwind tables.
    pub tables_fd: OwnedFd,
    /// Targets stamp with the TSC.
    pub clock_is_tsc: bool,
    /// Bounded wait of targets, ticks.
    pub wait_ticks: u64,
    /// Where events go.
    pub events: Sender<Event>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
}

const LISTENER: u64 = 0;

impl Server {
    /// Serves until told to stop.
    pub fn run(self) {
        let Ok(poller) = sys::Poller::new() else { return };
        if poller.add(&self.listener, LISTENER, false).is_err() {
            return;
        }
        let mut next_image = 1;
        // Images whose end the kernel will tell, and the newest image of a pid.
        let mut watched: HashMap<u64, OwnedFd> = HashMap::new();
        let mut newest: HashMap<u32, u64> = HashMap::new();
        // Images of which the agent alone has attached: in a forked child whoever has the first
        // event is first.
        let mut agents: HashSet<u64> = HashSet::new();
        // The closing of the socket in which all were heard.
        let mut heard = None;
        // Made while nobody waits for it.
        let mut spare = None;
        while !self.stop.load(Acquire) {
            if spare.is_none() {
                spare = Region::new().ok();
            }
            // Asked before looking who waits: afterwards nobody finds the way any more.
            let closing = self.socket.closing();
            // Ends before beginnings, one beginning at a time: whoever was reaped
            // before a process connected is told to have ended before it began.
            let ready = poller.wait(Duration::from_millis(100));
            for token in ready.iter().filter(|token| **token != LISTENER) {
                if let Some(fd) = watched.remove(token) {
                    let pid = newest.iter().find(|(_, image)| *image == token).map(|(pid, _)| *pid);
                    let status =
                        sys::exit_status(&fd).or_else(|| pid.and_then(proc::zombie_status));
                    let (image, time_ns, pidfd) = (*token, sys::monotonic_ns(), Some(fd));
                    self.send(Event::Ended { image, time_ns, status, pidfd, exec: false });
                    newest.retain(|_, image| image != token);
                    agents.remove(token);
                }
            }
            if !ready.contains(&LISTENER) && closing.is_none() {
                continue;
            }
            let accepted = sys::accept(&self.listener);
            if let Some(turn) = closing.filter(|_| closing != heard && matches!(accepted, Ok(None)))
            {
                heard = closing;
                self.send(Event::AllAccepted(turn));
            }
            let Ok(Some(client)) = accepted else { continue };
            if closing.is_some() && closing == heard {
                continue; // hears no answer, and looks for another collector
            }
            let Some((mut attached, fds)) = self.receive(&client, next_image, &mut spare) else {
                continue;
            };
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
            let joins = |image: &u64| agent || forked && agents.contains(image);
            if let Some(image) = newest.get(&attached.pid).copied().filter(joins) {
                if !agent {
                    agents.remove(&image);
                }
                let region = Arc::clone(&attached.region);
                self.send(Event::Joined { image, region, agent });
                self.admit(&client, &fds, late);
                continue;
            }
            // All is noted before the process may go on: it can be gone at once.
            let image = next_image;
            next_image += 1;
            if let Ok(fd) = sys::pidfd(attached.pid)
                && poller.add(&fd, image, true).is_ok()
            {
                watched.insert(image, fd);
                attached.watched = true;
            }
            if agent {
                agents.insert(image);
            }
            let awaited =
                !agent && self.has_native_stacks() && self.ahead.is_awaited(&attached.exe);
            if !forked || awaited {
                // While it waits: a short process can be gone before anybody asks.
                let maps = modules::read_code_maps(attached.pid).unwrap_or_default();
                if awaited {
                    attached.modules = self.ahead.publish(attached.pid, &maps, &attached.region);
                }
                // A forked child has its parent's.
                attached.begun_with = if forked { Vec::new() } else { maps };
            }
            let old = newest.insert(attached.pid, image);
            self.send(Event::Attached(Box::new(attached)));
            if let Some(image) = old.filter(|_| !forked) {
                watched.remove(&image);
                let time_ns = sys::monotonic_ns();
                self.send(Event::Ended { image, time_ns, status: None, pidfd: None, exec: true });
            }
            self.admit(&client, &fds, late);
        }
    }

    /// Whether the first stack of a process needs tables, and nothing but tables: Python's
    /// functions need an interpreter that is looked for when a process asks.
    fn has_native_stacks(&self) -> bool {
        matches!(self.config.stacks, StackMode::Auto | StackMode::Dwarf)
    }

    /// Lets a target begin. If this fails it is gone, or did not wait any longer.
    fn admit(&self, client: &OwnedFd, region: &OwnedFd, late: Unanswered) {
        let fds = [self.session_fd.as_raw_fd(), region.as_raw_fd(), self.tables_fd.as_raw_fd()];
        if sys::send(client, &Welcome::new(true).to_bytes(), &fds).is_err() {
            self.was_late(late);
        }
    }

    /// Whoever went on alone may come again.
    fn was_late(&self, late: Unanswered) {
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

    /// Hears one client out; a target, and the file of its region.
    fn receive(
        &self,
        client: &OwnedFd,
        image: u64,
        spare: &mut Option<(Region, OwnedFd)>,
    ) -> Option<(Attached, OwnedFd)> {
        let (pid, uid) = sys::peer(client).ok()?;
        if uid != sys::user() && uid != 0 {
            return None; // closed to others
        }
        sys::set_timeout(client, HELLO_TIME).ok()?;
        let mut buffer = [0u8; 64];
        let len = sys::receive(client, &mut buffer).ok()?;
        let hello = Hello::from_bytes(buffer.get(..len)?)?;
        if !hello.is_of_this_version() {
            let _ = sys::send(client, &Welcome::new(false).to_bytes(), &[]);
            return None;
        }
        if hello.role == Role::Control as u32 {
            if let Ok(client) = client.try_clone() {
                self.control(client);
            }
            return None;
        }
        let command = proc::words_of(pid);
        let stat = proc::Stat::of(pid);
        let parent = stat.as_ref().and_then(proc::Stat::parent).unwrap_or(hello.parent);
        let agent = hello.flags & hello_flags::AGENT != 0;
        if sys::is_hung_up(client) {
            let time_ns = sys::monotonic_ns();
            self.was_late(Unanswered { pid, parent, agent, command, time_ns });
            return None;
        }
        let (region, region_fd) = spare.take().or_else(|| Region::new().ok())?;
        self.configure(&region, agent);
        let environ = proc::environment_of(pid);
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
            program: Some(format!("/proc/{pid}/exe"))
                .filter(|_| self.config.memory() != MemMode::Off)
                .and_then(|path| elf::open(Path::new(&path)).ok()),
            ranks: ranks::read(&environ),
            nvtx_owner: nvtx_owner(pid, &environ)
                .filter(|_| self.config.activities.contains(&Activity::Nvtx)),
            watched: false,
            time_ns: sys::monotonic_ns(),
            begun_with: Vec::new(),
            modules: None,
        };
        Some((attached, region_fd))
    }

    fn configure(&self, region: &Region, agent: bool) {
        let header = region.header();
        let config = &self.config;
        let (mode, interval) = match config.memory() {
            _ if agent => (mem_mode::OFF, 0),
            MemMode::Off => (mem_mode::OFF, 0),
            MemMode::Sampled { interval } => (mem_mode::SAMPLED, interval),
            MemMode::Exact => (mem_mode::EXACT, 0),
        };
        header.mem_mode.store(mode, Relaxed);
        let calls = [Activity::Gpu, Activity::Comm];
        let calls = calls.iter().any(|activity| config.activities.contains(activity));
        header.calls.store(u32::from(calls), Relaxed);
        header.sample_interval.store(interval, Relaxed);
        let stacks = match config.stacks {
            StackMode::Auto => stack_mode::AUTO,
            StackMode::Fp => stack_mode::FP,
            StackMode::Dwarf => stack_mode::DWARF,
            StackMode::Python => stack_mode::PYTHON,
            StackMode::Off => stack_mode::OFF,
        };
        header.stack_mode.store(stacks, Relaxed);
        header.wait_on_full.store(u32::from(config.on_full == OnFull::Wait), Relaxed);
        header.wait_ticks.store(self.wait_ticks, Relaxed);
        header.clock_is_tsc.store(u32::from(self.clock_is_tsc), Release);
    }

    /// Serves a control client beside, so that processes need not wait for it.
    fn control(&self, client: OwnedFd) {
        let (events, session) = (self.events.clone(), Arc::clone(&self.session));
        let answer = move || {
            let Some(request) = control::receive(&client) else { return };
            let (reply, answer) = channel();
            if events.send(Event::Control(request, reply)).is_err() {
                return;
            }
            session.wake();
            let answer = answer.recv_timeout(Duration::from_secs(4)).unwrap_or(Reply {
                ok: false,
                message: "the collector is busy".to_owned(),
                status: None,
            });
            if let Ok(bytes) = serde_json::to_vec(&answer) {
                let _ = sys::send(&client, &bytes, &[]);
            }
        };
        // Refused where no thread may be started: the client sees it end.
        let _ = std::thread::Builder::new().name("tprof-control".to_owned()).spawn(answer);
    }
}

/// Who gets a process's NVTX ranges in tprof's place, if what `NVTX_INJECTION64_PATH` names is
/// not tprof's agent: in words, and nobody if it is no library.
fn nvtx_owner(pid: u32, environ: &[u8]) -> Option<String> {
    let value = environ
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(env::NVTX_INJECTION.as_bytes())?.strip_prefix(b"="))?;
    let name = value.rsplit(|byte| *byte == b'/').next().unwrap_or(value);
    if value.is_empty() || name == env::AGENT_LIBRARY.as_bytes() {
        return None;
    }
    let variable = env::NVTX_INJECTION;
    let (path, name) = (String::from_utf8_lossy(value), String::from_utf8_lossy(name));
    Some(match is_library(pid, value) {
        Some(true) | None => format!("{variable} names another library ({name}), which keeps them"),
        Some(false) => format!("{variable} names {path}, which is no library: the ranges are lost"),
    })
}

/// Whether a process finds a library under a path; `None` where that cannot be told.
fn is_library(pid: u32, path: &[u8]) -> Option<bool> {
    // A name alone is looked for by the loader.
    let folder = match path.first()? {
        b'/' => "root",
        _ if path.contains(&b'/') => "cwd/",
        _ => return None,
    };
    let whole = [format!("/proc/{pid}/{folder}").as_bytes(), path].concat();
    let path = OsStr::from_bytes(&whole);
    match std::fs::metadata(path) {
        // Else opening it might wait.
        Ok(about) if about.is_file() => {
            let mut magic = [0; 4];
            let read = std::fs::File::open(path).ok()?.read(&mut magic).ok()?;
            Some(read == magic.len() && magic == *b"\x7fELF")
        }
        Ok(_) => Some(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}
