//! Executes statements with the local query engine, or on a Spark Connect server if `--remote` is
//! given.

use std::sync::Arc;

use crate::execute::execute;
use crate::output::Output;
use crate::query_failure::QueryFailure;
use crate::remote::Remote;
use crate::session::Session;
use crate::statements::{Dialect, Source};

/// The tables, and the engine that executes statements over them.
pub struct Engine {
    /// The tables and the local engine.
    pub session: Arc<Session>,
    /// The server, if there is one.
    pub remote: Option<Remote>,
}

impl Engine {
    /// Returns the SQL dialect of statements.
    pub fn dialect(&self) -> Dialect {
        match self.remote {
            Some(_) => Dialect::Server,
            None => Dialect::Own,
        }
    }

    /// Returns the names of the functions that can be completed without a request to a server.
    pub fn functions(&self) -> Vec<String> {
        match self.remote {
            Some(_) => Vec::new(),
            None => self.session.functions(),
        }
    }

    /// Executes a statement and writes its result, if it has one.
    pub async fn execute(&self, source: &Source, output: &mut Output) -> Result<(), QueryFailure> {
        match &self.remote {
            Some(remote) => remote.execute(&self.session, source, output).await,
            None => execute(&self.session, source, output).await,
        }
    }

    /// Stops all executions on the server.
    pub async fn interrupt(&self) {
        if let Some(remote) = &self.remote {
            remote.interrupt().await;
        }
    }

    /// Ends the session on a server.
    pub async fn leave(&self) {
        if let Some(remote) = &self.remote {
            remote.leave().await;
        }
    }
}
