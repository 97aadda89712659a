//! A connection to a Spark Connect server, and its requests.
//!
//! The module uses tonic, and defines the few messages that a query needs. Existing crates do not
//! fit: those of Apache Spark (`apache-spark-connect` 4.2), and `spark-connect` 0.3 based on it,
//! need `protoc` to compile, use another version of Arrow than DataFusion, and bring whole data
//! frames; `spark-connect-rs` is no longer maintained.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tprof_ui::errors::Failure;
use uuid::Uuid;

use super::address::Address;
use super::connection;
use super::messages::{
    ALL, AnalyzePlanRequest, AnalyzePlanResponse, Empty, ExecutePlanRequest, ExecutePlanResponse,
    FetchErrorDetailsRequest, FetchErrorDetailsResponse, InputFiles, InterruptRequest, Plan,
    ReattachExecuteRequest, ReattachOptions, ReleaseExecuteRequest, ReleaseSessionRequest,
    RequestOption, UserContext,
};
use crate::status::MISUSE;

/// Timeout for reaching the server.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection may be silent before the server is sent a ping, which it must answer
/// within the same time.
const SILENCE: Duration = Duration::from_secs(30);
/// Timeout for the list of a table's files.
const LISTING: Duration = Duration::from_secs(120);
/// Timeout for requests while the program ends.
const LAST: Duration = Duration::from_secs(2);
/// Longest message in bytes, as in Spark's own clients.
const LONGEST: usize = 128 << 20;

/// A session on the server.
struct ServerSession {
    /// Name that this program gave the session.
    name: String,
    /// The server's own name for the session. If it changes, the server has a new session without
    /// views.
    observed: Option<String>,
    /// Health of the session as the last request found it.
    health: SessionHealth,
}

/// Health of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionHealth {
    /// The server and the session are there.
    #[default]
    Alive,
    /// No server answers.
    Unreachable,
    /// The server was restarted, and the session is lost.
    Lost,
}

impl ServerSession {
    fn new() -> ServerSession {
        let name = Uuid::new_v4().to_string();
        ServerSession { name, observed: None, health: SessionHealth::Alive }
    }
}

/// A connection with a session of its own.
pub struct Client {
    channel: Channel,
    headers: MetadataMap,
    session: Mutex<ServerSession>,
    user: UserContext,
    agent: String,
    /// Address of the server.
    pub address: Address,
}

impl Client {
    /// Connects to a server. The connection belongs to the runtime in which it is created.
    pub async fn connect(address: Address) -> Result<Client, Failure> {
        let scheme = if address.is_tls { "https" } else { "http" };
        let failed = |error| connection::failed(&address, &error);
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", address.shown()))
            .and_then(|endpoint| endpoint.user_agent(address.agent.clone()))
            .map_err(failed)?
            .connect_timeout(CONNECT)
            .tcp_keepalive(Some(SILENCE))
            .http2_keep_alive_interval(SILENCE)
            .keep_alive_timeout(SILENCE)
            .http2_adaptive_window(true);
        if address.is_tls {
            let roots = ClientTlsConfig::new().with_native_roots();
            endpoint = endpoint.tls_config(roots).map_err(failed)?;
        }
        let channel = match tokio::time::timeout(CONNECT, endpoint.connect()).await {
            Ok(connected) => connected.map_err(failed)?,
            Err(_) => return Err(connection::silent(&address)),
        };
        Ok(Client {
            channel,
            headers: headers(&address)?,
            session: Mutex::new(ServerSession::new()),
            user: UserContext { user_id: address.user.clone(), user_name: address.user.clone() },
            agent: address.agent.clone(),
            address,
        })
    }

    /// Starts to execute a plan under the name `operation`. Returns the parts of the answer.
    pub async fn execute(&self, operation: &str, plan: Plan) -> Parts {
        let reattach = ReattachOptions { reattachable: true };
        let request = ExecutePlanRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            plan: Some(plan),
            client_type: Some(self.agent.clone()),
            request_options: vec![RequestOption { reattach: Some(reattach) }],
            operation_id: Some(operation.to_owned()),
            observed_session_id: self.observed(),
        };
        self.stream("ExecutePlan", request).await
    }

    /// Returns the number of files that the server reads for a plan; `None` if the server does not
    /// say.
    pub async fn files(&self, plan: Plan) -> Option<usize> {
        let request = AnalyzePlanRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            client_type: Some(self.agent.clone()),
            input_files: Some(InputFiles { plan: Some(plan) }),
        };
        let answer = self.unary::<_, AnalyzePlanResponse>("AnalyzePlan", request);
        let answer = tokio::time::timeout(LISTING, answer).await.ok()?;
        Some(answer.ok()?.input_files?.files.len())
    }

    /// Requests the rest of an answer.
    pub async fn reattach(&self, operation: &str, last: Option<&str>) -> Parts {
        let request = ReattachExecuteRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            operation_id: operation.to_owned(),
            client_type: Some(self.agent.clone()),
            last_response_id: last.map(str::to_owned),
            observed_session_id: self.observed(),
        };
        self.stream("ReattachExecute", request).await
    }

    /// Ends an execution and discards the rest of its answer. Failures are ignored, because the
    /// server ends abandoned executions after a while.
    pub async fn release(&self, operation: &str) {
        let request = ReleaseExecuteRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            operation_id: operation.to_owned(),
            client_type: Some(self.agent.clone()),
            all: Some(Empty {}),
        };
        self.send_best_effort("ReleaseExecute", request).await;
    }

    /// Stops everything that the session executes.
    pub async fn interrupt(&self) {
        let request = InterruptRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            client_type: Some(self.agent.clone()),
            kind: ALL,
        };
        self.send_best_effort("Interrupt", request).await;
    }

    /// Ends the session on the server.
    pub async fn leave(&self) {
        let request = ReleaseSessionRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            client_type: Some(self.agent.clone()),
        };
        self.send_best_effort("ReleaseSession", request).await;
    }

    /// Returns all details of an error; `None` if the server does not have them.
    pub async fn details(&self, error: String) -> Option<FetchErrorDetailsResponse> {
        let request = FetchErrorDetailsRequest {
            session_id: self.session_name(),
            user_context: Some(self.user.clone()),
            error_id: error,
            client_type: Some(self.agent.clone()),
        };
        tokio::time::timeout(LAST, self.unary("FetchErrorDetails", request)).await.ok()?.ok()
    }

    /// Records the server's own name of the session; false if it has changed.
    pub fn record_session_name(&self, name: &str) -> bool {
        let mut session = self.session();
        match &session.observed {
            Some(known) => name.is_empty() || known == name,
            None => {
                session.observed = Some(name.to_owned()).filter(|name| !name.is_empty());
                true
            }
        }
    }

    /// Records how a request found the session.
    pub fn record_health(&self, health: SessionHealth) {
        self.session().health = health;
    }

    /// Returns the health that the last failed request found, and resets it for the next one.
    pub fn health(&self) -> SessionHealth {
        std::mem::take(&mut self.session().health)
    }

    /// Begins a new session, without views.
    pub fn begin_session(&self) {
        *self.session() = ServerSession::new();
    }

    fn session_name(&self) -> String {
        self.session().name.clone()
    }

    fn observed(&self) -> Option<String> {
        self.session().observed.clone()
    }

    fn session(&self) -> MutexGuard<'_, ServerSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request that only helps the server, so failures are ignored.
    async fn send_best_effort(&self, method: &str, message: impl Message + 'static) {
        let _ = tokio::time::timeout(LAST, self.unary::<_, Empty>(method, message)).await;
    }

    async fn unary<Q, A>(&self, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        Ok(grpc.unary(self.request(message), path(method)?, codec).await?.into_inner())
    }

    async fn stream<Q: Message + 'static>(&self, method: &str, message: Q) -> Parts {
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<Q, ExecutePlanResponse>::default();
        let answer = grpc.server_streaming(self.request(message), path(method)?, codec).await?;
        Ok(answer.into_inner())
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone())
            .max_decoding_message_size(LONGEST)
            .max_encoding_message_size(LONGEST);
        // The time is limited, because a channel that has lost its connection waits until a server
        // answers.
        match tokio::time::timeout(CONNECT, grpc.ready()).await {
            Ok(Ok(())) => Ok(grpc),
            Ok(Err(error)) => Err(Status::unavailable(connection::innermost(&error))),
            Err(_) => Err(Status::unavailable("it does not answer")),
        }
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request
    }
}

/// Result of an execution, part by part.
pub type Parts = Result<Streaming<ExecutePlanResponse>, Status>;

fn path(method: &str) -> Result<PathAndQuery, Status> {
    let path = format!("/spark.connect.SparkConnectService/{method}");
    PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))
}

fn headers(address: &Address) -> Result<MetadataMap, Failure> {
    let mut headers = MetadataMap::new();
    let wrong = |name: &str| {
        // The value is not repeated, because it may be secret.
        Failure::new(format!("`{name}` of --remote cannot be sent"))
            .cause("it is not a valid HTTP header")
            .hint("letters, digits and - in names; %XX for special characters in values")
            .code(MISUSE)
    };
    for (name, value) in &address.headers {
        let key = name.parse::<MetadataKey<Ascii>>().map_err(|_| wrong(name))?;
        headers.insert(key, value.parse().map_err(|_| wrong(name))?);
    }
    if let Some(token) = &address.token {
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_| wrong("token"))?;
        value.set_sensitive(true);
        headers.insert("authorization", value);
    }
    Ok(headers)
}
