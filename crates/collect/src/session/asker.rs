//! Asks the engine from other threads.

use crate::engine::inbox::{Event, Reply, Request, WatchedStep};
use crate::shared::SessionMemory;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Longest time that the engine may take to answer a request.
const ANSWER_TIME: Duration = Duration::from_secs(4);

/// Sends requests and messages to the engine.
#[derive(Clone)]
pub struct Asker {
    /// The channel to the engine.
    pub events: Sender<Event>,
    /// The session's shared page, by which the engine is woken.
    pub session: Arc<SessionMemory>,
}

impl Asker {
    /// Returns the engine's reply to a request; `None` if the engine has ended.
    pub fn ask(&self, request: &Request) -> Option<Reply> {
        let (reply, answer) = channel();
        self.events.send(Event::Control(request.clone(), reply)).ok()?;
        self.session.wake();
        // A dump that was asked for twice is one.
        let waits = matches!(request, Request::Dump { .. });
        let busy = || Reply { waits, ..Reply::new(false, "the collector is busy".to_owned()) };
        Some(answer.recv_timeout(ANSWER_TIME).unwrap_or_else(|_| busy()))
    }

    /// Returns the last step of each process whose steps are watched; `None` if the engine has ended
    /// or is busy.
    pub fn steps(&self) -> Option<Vec<WatchedStep>> {
        let (reply, answer) = channel();
        self.events.send(Event::WatchSteps(reply)).ok()?;
        self.session.wake();
        answer.recv_timeout(ANSWER_TIME).ok()
    }

    /// Sends a message to the engine.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send(event);
        self.session.wake();
    }
}
