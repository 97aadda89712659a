//! Answers about runs in progress: every second for a page, and on request for a scraper.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tprof_live::{RunState, Snapshot, prometheus};

use crate::app::App;
use crate::failure::Failure;
use crate::runs::RegisteredRun;

/// Number of events that wait for a slow browser. If it misses more, it is sent the whole snapshot
/// again.
const WAITING: usize = 4;
/// Largest number of runs in progress whose figures a scraper gets.
const MOST_SCRAPED: usize = 24;
/// Interval at which comments are sent, because a proxy may close a silent stream.
const ALIVE: Duration = Duration::from_secs(15);

/// Answers `GET /api/v1/runs/ID/live`.
pub async fn now(State(app): State<Arc<App>>, Path(id): Path<u32>) -> Result<Response, Failure> {
    let run = app.run(id)?;
    let text = app.lives.now(&run).await?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Answers `GET /api/v1/runs/ID/events`.
pub async fn events(State(app): State<Arc<App>>, Path(id): Path<u32>) -> Result<Response, Failure> {
    let run = app.run(id)?;
    // The run is read once before the stream starts, so that a failure becomes an error response.
    app.lives.snapshot(&run).await?;
    let (to, from) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        // An error means that the browser or the run has gone.
        let _ = send(&app, &run, &to).await;
    });
    let stream = Sse::new(ReceiverStream::new(from)).keep_alive(KeepAlive::new().interval(ALIVE));
    Ok(stream.into_response())
}

type Sender = mpsc::Sender<Result<Event, Infallible>>;

/// Sends ticks until the run or the browser ends.
async fn send(app: &App, run: &RegisteredRun, to: &Sender) -> Option<()> {
    loop {
        let (start, mut ticks) = app.lives.ticks(run).await.ok()?;
        to.send(Ok(Event::default().event("start").data(start))).await.ok()?;
        loop {
            let tick = tokio::select! {
                tick = ticks.recv() => tick,
                () = to.closed() => return None,
            };
            match tick {
                Ok(tick) => {
                    to.send(Ok(Event::default().event("tick").data(&*tick.text))).await.ok()?;
                    if !tick.is_running {
                        to.send(Ok(Event::default().event("end").data("{}"))).await.ok()?;
                        return Some(());
                    }
                }
                Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Answers `GET /metrics`.
pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let (_, snapshots) = running(&app, |_| false).await;
    let named: Vec<_> =
        snapshots.iter().map(|(name, snapshot)| (name.as_str(), &**snapshot)).collect();
    let text = prometheus(&named);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Returns the snapshots of runs in progress with their names, and the numbers of these runs with
/// whether they still go on. `also` selects runs that have ended, too.
pub async fn running(
    app: &App,
    also: impl Fn(u32) -> bool,
) -> (Vec<(u32, bool)>, Vec<(String, Arc<Snapshot>)>) {
    let (runs, _) = app.registry.list();
    let is_running = |run: &RegisteredRun| run.entry.state == "running";
    let wanted = runs.iter().filter(|run| is_running(run) || also(run.id)).take(MOST_SCRAPED);
    let (mut ids, mut snapshots) = (Vec::new(), Vec::<(String, Arc<Snapshot>)>::new());
    for run in wanted {
        // A run that is gone meanwhile is skipped.
        let Ok(snapshot) = app.lives.snapshot(run).await else { continue };
        let path = &run.entry.path;
        let mut name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        // A scraper refuses everything if two series have the same labels.
        if snapshots.iter().any(|(known, _)| *known == name) {
            name = path.to_string_lossy().into_owned();
        }
        ids.push((run.id, snapshot.state == RunState::Running));
        snapshots.push((name, snapshot));
    }
    (ids, snapshots)
}
