//! Receives the rows of an execution over connections that may break.
//!
//! A server sends an answer in parts, and stores the latest ones. After a broken connection, it
//! resends everything that follows the last part that arrived. It also ends each response after
//! some minutes, and expects a request for the rest. So an answer is complete only when its last
//! part has arrived. If the rest doesn't arrive, the query fails: it never returns fewer rows.

use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::reader::StreamReader;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use super::client::Client;
use super::messages::{ArrowBatch, ExecutePlanResponse, Plan};

/// Number of attempts to resume an answer before it fails. The count starts again when a part
/// arrives.
const ATTEMPTS: u32 = 5;
/// Time before the first attempt; each further attempt waits twice as long.
const PAUSE: Duration = Duration::from_millis(200);

/// Reasons why rows ended too early.
#[derive(Debug)]
pub enum StreamFailure {
    /// The request failed with this status, which may also mean that the server did not answer.
    Status(Status),
    /// The server was restarted and has forgotten the session.
    Restarted,
    /// The data that arrived cannot be read.
    Unreadable(String),
}

impl From<Status> for StreamFailure {
    fn from(status: Status) -> StreamFailure {
        StreamFailure::Status(status)
    }
}

/// The rows of an execution.
pub struct Answer<'c> {
    client: &'c Client,
    operation: String,
    plan: Plan,
    parts: Option<Streaming<ExecutePlanResponse>>,
    /// Id of the last part that arrived.
    last: Option<String>,
    rows: i64,
    /// Number of times that the connection broke since the last part.
    breaks: u32,
    is_complete: bool,
}

impl<'c> Answer<'c> {
    /// Starts to execute a plan.
    pub async fn of(client: &'c Client, plan: Plan) -> Result<Answer<'c>, StreamFailure> {
        let operation = Uuid::new_v4().to_string();
        let begun = client.execute(&operation, plan.clone()).await;
        let mut answer = Answer {
            client,
            operation,
            plan,
            parts: None,
            last: None,
            rows: 0,
            breaks: 0,
            is_complete: false,
        };
        answer.parts = match begun {
            Ok(parts) => Some(parts),
            Err(status) if is_of_connection(&status) => Some(answer.mended(status).await?),
            Err(status) => return Err(status.into()),
        };
        Ok(answer)
    }

    /// Returns the next rows; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>, StreamFailure> {
        while let Some(part) = self.part().await? {
            if let Some(batch) = part.arrow_batch {
                return self.read(&batch).map(Some);
            }
        }
        Ok(None)
    }

    /// Ends the execution, also on the server.
    pub async fn release(self) {
        self.client.release(&self.operation).await;
    }

    fn read(&mut self, batch: &ArrowBatch) -> Result<Vec<RecordBatch>, StreamFailure> {
        if batch.start_offset.is_some_and(|before| before != self.rows) {
            return Err(StreamFailure::Unreadable("rows are missing between two parts".into()));
        }
        let unreadable = |error: datafusion::arrow::error::ArrowError| {
            StreamFailure::Unreadable(error.to_string())
        };
        let reader = StreamReader::try_new(&batch.data[..], None).map_err(unreadable)?;
        let schema = reader.schema();
        let mut batches = reader.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if i64::try_from(rows) != Ok(batch.row_count) {
            return Err(StreamFailure::Unreadable(
                "a part has not as many rows as it states".into(),
            ));
        }
        self.rows += batch.row_count;
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema));
        }
        Ok(batches)
    }

    /// Returns the next part; `None` at the end.
    async fn part(&mut self) -> Result<Option<ExecutePlanResponse>, StreamFailure> {
        while !self.is_complete {
            let came = match &mut self.parts {
                Some(parts) => parts.message().await,
                None => Ok(None),
            };
            match came {
                Ok(Some(part)) => {
                    if !self.client.record_session_name(&part.server_session_id) {
                        return Err(StreamFailure::Restarted);
                    }
                    if !part.response_id.is_empty() {
                        self.last = Some(part.response_id.clone());
                    }
                    self.is_complete = part.complete.is_some();
                    self.breaks = 0;
                    return Ok(Some(part));
                }
                // The stream ended without an error, but before the last part, so the server has
                // more.
                Ok(None) if self.breaks < ATTEMPTS => {
                    self.breaks += 1;
                    match self.again().await {
                        Err(status) if status.code() == Code::Unimplemented => {
                            return Err(StreamFailure::Unreadable(
                                "it ended before its last part".into(),
                            ));
                        }
                        Err(status) => return Err(status.into()),
                        Ok(parts) => self.parts = Some(parts),
                    }
                }
                Ok(None) => {
                    return Err(StreamFailure::Unreadable(
                        "it ends again and again without a part".into(),
                    ));
                }
                // The number of attempts is limited, because a connection may break forever before
                // a part arrives.
                Err(status) if is_of_connection(&status) && self.breaks < ATTEMPTS => {
                    self.breaks += 1;
                    self.parts = Some(self.mended(status).await?);
                }
                Err(status) if is_forgotten(&status) => return Err(StreamFailure::Restarted),
                Err(status) => return Err(status.into()),
            }
        }
        Ok(None)
    }

    /// Requests the rest of the answer over a new connection.
    async fn mended(&self, broke: Status) -> Result<Streaming<ExecutePlanResponse>, StreamFailure> {
        for attempt in 0..ATTEMPTS {
            tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
            match self.again().await {
                Ok(parts) => return Ok(parts),
                // The request never reached the server.
                Err(status) if is_forgotten(&status) && self.last.is_none() => {
                    let begun = self.client.execute(&self.operation, self.plan.clone()).await;
                    match begun {
                        Ok(parts) => return Ok(parts),
                        Err(status) if is_forgotten(&status) => {
                            return Err(StreamFailure::Restarted);
                        }
                        Err(status) if is_of_connection(&status) => {}
                        Err(status) => return Err(status.into()),
                    }
                }
                Err(status) if is_forgotten(&status) => return Err(StreamFailure::Restarted),
                Err(status) if is_of_connection(&status) => {}
                // The original error is more useful than the reason why the connection could not be
                // resumed.
                Err(_) => break,
            }
        }
        Err(broke.into())
    }

    async fn again(&self) -> Result<Streaming<ExecutePlanResponse>, Status> {
        self.client.reattach(&self.operation, self.last.as_deref()).await
    }
}

/// Whether the status means that the connection broke, so that the request may succeed over a new
/// one.
pub fn is_of_connection(status: &Status) -> bool {
    let is_transport = || std::error::Error::source(status).is_some();
    match status.code() {
        Code::Unavailable => true,
        Code::Unknown | Code::Internal | Code::Cancelled => is_transport(),
        _ => false,
    }
}

/// Whether the server no longer knows the session or the execution.
fn is_forgotten(status: &Status) -> bool {
    let text = status.message();
    ["INVALID_HANDLE.", "SESSION_NOT_FOUND", "OPERATION_NOT_FOUND", "SESSION_CHANGED"]
        .iter()
        .any(|of| text.contains(of))
}
