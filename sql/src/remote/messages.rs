//! Messages of Spark Connect that a query needs, and of gRPC's errors.
//!
//! Names and numbers come from `spark/connect/*.proto` of Apache Spark 4.2 (Apache-2.0), in which
//! no number has changed since 3.4. Fields that are neither sent nor read are left out, because
//! protobuf readers skip unknown fields.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// The user who asks.
#[derive(Clone, PartialEq, Message)]
pub struct UserContext {
    /// User name, by which a server keeps sessions apart.
    #[prost(string, tag = "1")]
    pub user_id: String,
    /// User name for people.
    #[prost(string, tag = "2")]
    pub user_name: String,
}

/// A plan for the server to execute.
#[derive(Clone, PartialEq, Message)]
pub struct Plan {
    /// The relation or command.
    #[prost(oneof = "Op", tags = "1, 2")]
    pub op: Option<Op>,
}

/// Rows or a command.
#[derive(Clone, PartialEq, Oneof)]
pub enum Op {
    /// A query for rows.
    #[prost(message, tag = "1")]
    Root(Relation),
    /// A command without rows.
    #[prost(message, tag = "2")]
    Action(Action),
}

/// A relation, which has rows.
#[derive(Clone, PartialEq, Message)]
pub struct Relation {
    /// Fields of all relations.
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelationCommon>,
    /// Source of the rows.
    #[prost(oneof = "Rows", tags = "2, 6, 10")]
    pub rows: Option<Rows>,
}

/// Fields that all relations have.
#[derive(Clone, PartialEq, Message)]
pub struct RelationCommon {
    /// Number that is unique in a session.
    #[prost(int64, optional, tag = "2")]
    pub plan_id: Option<i64>,
}

/// Source of rows.
#[derive(Clone, PartialEq, Oneof)]
pub enum Rows {
    /// Rows of files.
    #[prost(message, tag = "2")]
    Read(Read),
    /// Rows of two relations.
    #[prost(message, boxed, tag = "6")]
    SetOperation(Box<SetOperation>),
    /// Rows of a query.
    #[prost(message, tag = "10")]
    Sql(Sql),
}

/// Files to read.
#[derive(Clone, PartialEq, Message)]
pub struct Read {
    /// The data source.
    #[prost(message, optional, tag = "2")]
    pub data_source: Option<DataSource>,
}

/// Files of a format, with their paths and columns.
#[derive(Clone, PartialEq, Message)]
pub struct DataSource {
    /// Format, which is `parquet`.
    #[prost(string, optional, tag = "1")]
    pub format: Option<String>,
    /// Columns as SQL declares them.
    #[prost(string, optional, tag = "2")]
    pub schema: Option<String>,
    /// Options of the format.
    #[prost(map = "string, string", tag = "3")]
    pub options: HashMap<String, String>,
    /// Addresses of the files.
    #[prost(string, repeated, tag = "4")]
    pub paths: Vec<String>,
}

/// Two relations combined into one.
#[derive(Clone, PartialEq, Message)]
pub struct SetOperation {
    /// The first relation.
    #[prost(message, optional, boxed, tag = "1")]
    pub left_input: Option<Box<Relation>>,
    /// The second relation.
    #[prost(message, optional, boxed, tag = "2")]
    pub right_input: Option<Box<Relation>>,
    /// Kind of combination, which is [`UNION`].
    #[prost(int32, tag = "3")]
    pub kind: i32,
    /// Whether duplicate rows stay.
    #[prost(bool, optional, tag = "4")]
    pub is_all: Option<bool>,
}

/// The rows of both relations.
pub const UNION: i32 = 2;

/// A SQL query.
#[derive(Clone, PartialEq, Message)]
pub struct Sql {
    /// Text of the query.
    #[prost(string, tag = "1")]
    pub query: String,
}

/// A command without rows.
#[derive(Clone, PartialEq, Message)]
pub struct Action {
    /// Kind of command.
    #[prost(oneof = "Act", tags = "3, 5")]
    pub act: Option<Act>,
}

/// Kinds of commands.
#[derive(Clone, PartialEq, Oneof)]
pub enum Act {
    /// Gives a relation a name.
    #[prost(message, tag = "3")]
    CreateView(CreateView),
    /// Executes a statement without rows.
    #[prost(message, tag = "5")]
    Sql(SqlCommand),
}

/// Gives a relation a name within the session.
#[derive(Clone, PartialEq, Message)]
pub struct CreateView {
    /// The relation to name.
    #[prost(message, optional, tag = "1")]
    pub input: Option<Relation>,
    /// Name of the view.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Whether other sessions can use it, too.
    #[prost(bool, tag = "3")]
    pub is_global: bool,
    /// Whether to replace a view of this name.
    #[prost(bool, tag = "4")]
    pub replace: bool,
}

/// A SQL statement.
#[derive(Clone, PartialEq, Message)]
pub struct SqlCommand {
    /// Text of the statement, for servers before 4.0.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// The statement, for servers since 4.0.
    #[prost(message, optional, tag = "6")]
    pub input: Option<Relation>,
}

/// Requests an execution.
#[derive(Clone, PartialEq, Message)]
pub struct ExecutePlanRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Plan to execute.
    #[prost(message, optional, tag = "3")]
    pub plan: Option<Plan>,
    /// Name of the program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
    /// Options of the execution.
    #[prost(message, repeated, tag = "5")]
    pub request_options: Vec<RequestOption>,
    /// Name of the execution, a UUID.
    #[prost(string, optional, tag = "6")]
    pub operation_id: Option<String>,
    /// The server's own name of the session, if it is known.
    #[prost(string, optional, tag = "8")]
    pub observed_session_id: Option<String>,
}

/// An option of the execution.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOption {
    /// Whether the answer can be requested again.
    #[prost(message, optional, tag = "1")]
    pub reattach: Option<ReattachOptions>,
}

/// Whether the answer can be requested again.
#[derive(Clone, PartialEq, Message)]
pub struct ReattachOptions {
    /// Whether the execution is reattachable.
    #[prost(bool, tag = "1")]
    pub reattachable: bool,
}

/// A part of an answer.
#[derive(Clone, PartialEq, Message)]
pub struct ExecutePlanResponse {
    /// The server's own name of the session.
    #[prost(string, tag = "15")]
    pub server_session_id: String,
    /// Id of this part.
    #[prost(string, tag = "13")]
    pub response_id: String,
    /// Rows as an Arrow stream.
    #[prost(message, optional, tag = "2")]
    pub arrow_batch: Option<ArrowBatch>,
    /// Present only in the last part.
    #[prost(message, optional, tag = "14")]
    pub complete: Option<Empty>,
}

/// A batch of rows.
#[derive(Clone, PartialEq, Message)]
pub struct ArrowBatch {
    /// Number of rows.
    #[prost(int64, tag = "1")]
    pub row_count: i64,
    /// Arrow stream of the rows.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: bytes::Bytes,
    /// Number of rows before this batch.
    #[prost(int64, optional, tag = "3")]
    pub start_offset: Option<i64>,
}

/// An empty message.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// Asks which files the rows of a plan come from.
#[derive(Clone, PartialEq, Message)]
pub struct AnalyzePlanRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Name of the program.
    #[prost(string, optional, tag = "3")]
    pub client_type: Option<String>,
    /// The plan in question.
    #[prost(message, optional, tag = "9")]
    pub input_files: Option<InputFiles>,
}

/// Asks for the input files of a plan.
#[derive(Clone, PartialEq, Message)]
pub struct InputFiles {
    /// Plan of the rows.
    #[prost(message, optional, tag = "1")]
    pub plan: Option<Plan>,
}

/// Answers which files the rows come from.
#[derive(Clone, PartialEq, Message)]
pub struct AnalyzePlanResponse {
    /// Paths of the input files.
    #[prost(message, optional, tag = "7")]
    pub input_files: Option<FileList>,
}

/// A list of files.
#[derive(Clone, PartialEq, Message)]
pub struct FileList {
    /// Addresses of the files.
    #[prost(string, repeated, tag = "1")]
    pub files: Vec<String>,
}

/// Requests the rest of an answer.
#[derive(Clone, PartialEq, Message)]
pub struct ReattachExecuteRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Name of the execution.
    #[prost(string, tag = "3")]
    pub operation_id: String,
    /// Name of the program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
    /// Id of the last part that arrived.
    #[prost(string, optional, tag = "5")]
    pub last_response_id: Option<String>,
    /// The server's own name of the session.
    #[prost(string, optional, tag = "6")]
    pub observed_session_id: Option<String>,
}

/// Releases an execution: no part of its answer is needed any more, and the rest is not executed.
#[derive(Clone, PartialEq, Message)]
pub struct ReleaseExecuteRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Name of the execution.
    #[prost(string, tag = "3")]
    pub operation_id: String,
    /// Name of the program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
    /// Releases all parts.
    #[prost(message, optional, tag = "5")]
    pub all: Option<Empty>,
}

/// Interrupts executions of a session.
#[derive(Clone, PartialEq, Message)]
pub struct InterruptRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Name of the program.
    #[prost(string, optional, tag = "3")]
    pub client_type: Option<String>,
    /// Which executions to interrupt: [`ALL`].
    #[prost(int32, tag = "4")]
    pub kind: i32,
}

/// All executions of the session.
pub const ALL: i32 = 1;

/// Ends a session on the server.
#[derive(Clone, PartialEq, Message)]
pub struct ReleaseSessionRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Name of the program.
    #[prost(string, optional, tag = "3")]
    pub client_type: Option<String>,
}

/// Requests all details of an error.
#[derive(Clone, PartialEq, Message)]
pub struct FetchErrorDetailsRequest {
    /// Id of the session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The user who asks.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Id of the error, from [`ErrorInfo`].
    #[prost(string, tag = "3")]
    pub error_id: String,
    /// Name of the program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
}

/// An error and its causes.
#[derive(Clone, PartialEq, Message)]
pub struct FetchErrorDetailsResponse {
    /// Index of the first error.
    #[prost(int32, optional, tag = "1")]
    pub root: Option<i32>,
    /// All errors of the chain.
    #[prost(message, repeated, tag = "2")]
    pub errors: Vec<ServerError>,
}

/// An error of the server.
#[derive(Clone, PartialEq, Message)]
pub struct ServerError {
    /// Message of the error.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Index of its cause in the list.
    #[prost(int32, optional, tag = "4")]
    pub cause: Option<i32>,
}

/// Content of `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// Details of the error.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Detail>,
}

/// A message of any type.
#[derive(Clone, PartialEq, Message)]
pub struct Detail {
    /// Type of the message.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
}

/// The message `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorInfo {
    /// Kind of error.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// Further fields of the error.
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
}
