//! The messages of Spark Connect that a query needs, and of gRPC's errors.
//!
//! Names and numbers are those of `spark/connect/*.proto` of Apache Spark 4.2 (Apache-2.0), where no number
//! has changed since 3.4. Fields that are neither sent nor read are left out: a reader of protobuf
//! passes over what it does not know.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// Who asks.
#[derive(Clone, PartialEq, Message)]
pub struct UserContext {
    /// Name, by which a server keeps sessions apart.
    #[prost(string, tag = "1")]
    pub user_id: String,
    /// Name for people.
    #[prost(string, tag = "2")]
    pub user_name: String,
}

/// What a server is asked to execute.
#[derive(Clone, PartialEq, Message)]
pub struct Plan {
    /// It.
    #[prost(oneof = "Op", tags = "1, 2")]
    pub op: Option<Op>,
}

/// Rows, or an act.
#[derive(Clone, PartialEq, Oneof)]
pub enum Op {
    /// Rows.
    #[prost(message, tag = "1")]
    Root(Relation),
    /// An act.
    #[prost(message, tag = "2")]
    Action(Action),
}

/// Rows.
#[derive(Clone, PartialEq, Message)]
pub struct Relation {
    /// Its number.
    #[prost(message, optional, tag = "1")]
    pub common: Option<RelationCommon>,
    /// Where they are from.
    #[prost(oneof = "Rows", tags = "2, 6, 10")]
    pub rows: Option<Rows>,
}

/// What all relations have.
#[derive(Clone, PartialEq, Message)]
pub struct RelationCommon {
    /// Unique in a session.
    #[prost(int64, optional, tag = "2")]
    pub plan_id: Option<i64>,
}

/// Where rows are from.
#[derive(Clone, PartialEq, Oneof)]
pub enum Rows {
    /// Files.
    #[prost(message, tag = "2")]
    Read(Read),
    /// Two relations.
    #[prost(message, boxed, tag = "6")]
    SetOperation(Box<SetOperation>),
    /// A query.
    #[prost(message, tag = "10")]
    Sql(Sql),
}

/// Files.
#[derive(Clone, PartialEq, Message)]
pub struct Read {
    /// Which.
    #[prost(message, optional, tag = "2")]
    pub data_source: Option<DataSource>,
}

/// Files of a kind, at places, with columns.
#[derive(Clone, PartialEq, Message)]
pub struct DataSource {
    /// `parquet`.
    #[prost(string, optional, tag = "1")]
    pub format: Option<String>,
    /// Columns, as SQL declares them.
    #[prost(string, optional, tag = "2")]
    pub schema: Option<String>,
    /// Options of the kind.
    #[prost(map = "string, string", tag = "3")]
    pub options: HashMap<String, String>,
    /// Addresses.
    #[prost(string, repeated, tag = "4")]
    pub paths: Vec<String>,
}

/// Two relations made one.
#[derive(Clone, PartialEq, Message)]
pub struct SetOperation {
    /// The first.
    #[prost(message, optional, boxed, tag = "1")]
    pub left_input: Option<Box<Relation>>,
    /// The second.
    #[prost(message, optional, boxed, tag = "2")]
    pub right_input: Option<Box<Relation>>,
    /// [`UNION`].
    #[prost(int32, tag = "3")]
    pub kind: i32,
    /// Whether equal rows stay.
    #[prost(bool, optional, tag = "4")]
    pub is_all: Option<bool>,
}

/// The rows of both.
pub const UNION: i32 = 2;

/// A query.
#[derive(Clone, PartialEq, Message)]
pub struct Sql {
    /// Its text.
    #[prost(string, tag = "1")]
    pub query: String,
}

/// An act.
#[derive(Clone, PartialEq, Message)]
pub struct Action {
    /// It.
    #[prost(oneof = "Act", tags = "3, 5")]
    pub act: Option<Act>,
}

/// An act.
#[derive(Clone, PartialEq, Oneof)]
pub enum Act {
    /// Names a relation.
    #[prost(message, tag = "3")]
    CreateView(CreateView),
    /// A statement that has no rows.
    #[prost(message, tag = "5")]
    Sql(SqlCommand),
}

/// Names a relation, in the session.
#[derive(Clone, PartialEq, Message)]
pub struct CreateView {
    /// The relation.
    #[prost(message, optional, tag = "1")]
    pub input: Option<Relation>,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Whether for other sessions, too.
    #[prost(bool, tag = "3")]
    pub is_global: bool,
    /// Whether one of that name goes.
    #[prost(bool, tag = "4")]
    pub replace: bool,
}

/// A statement.
#[derive(Clone, PartialEq, Message)]
pub struct SqlCommand {
    /// Its text, for servers before 4.0.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// Itself, for those since.
    #[prost(message, optional, tag = "6")]
    pub input: Option<Relation>,
}

/// Asks for an execution.
#[derive(Clone, PartialEq, Message)]
pub struct ExecutePlanRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// What.
    #[prost(message, optional, tag = "3")]
    pub plan: Option<Plan>,
    /// Program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
    /// How.
    #[prost(message, repeated, tag = "5")]
    pub request_options: Vec<RequestOption>,
    /// Its name, a UUID.
    #[prost(string, optional, tag = "6")]
    pub operation_id: Option<String>,
    /// The server's own name of the session, as far as it is known.
    #[prost(string, optional, tag = "8")]
    pub observed_session_id: Option<String>,
}

/// How to execute.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOption {
    /// Whether the answer can be asked for again.
    #[prost(message, optional, tag = "1")]
    pub reattach: Option<ReattachOptions>,
}

/// Whether the answer can be asked for again.
#[derive(Clone, PartialEq, Message)]
pub struct ReattachOptions {
    /// It can.
    #[prost(bool, tag = "1")]
    pub reattachable: bool,
}

/// A part of an answer.
#[derive(Clone, PartialEq, Message)]
pub struct ExecutePlanResponse {
    /// The server's own name of the session.
    #[prost(string, tag = "15")]
    pub server_session_id: String,
    /// Its own.
    #[prost(string, tag = "13")]
    pub response_id: String,
    /// Rows: an Arrow stream of its own.
    #[prost(message, optional, tag = "2")]
    pub arrow_batch: Option<ArrowBatch>,
    /// Only there in the last part.
    #[prost(message, optional, tag = "14")]
    pub complete: Option<Empty>,
}

/// Rows.
#[derive(Clone, PartialEq, Message)]
pub struct ArrowBatch {
    /// How many.
    #[prost(int64, tag = "1")]
    pub row_count: i64,
    /// An Arrow stream.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: bytes::Bytes,
    /// How many rows came before.
    #[prost(int64, optional, tag = "3")]
    pub start_offset: Option<i64>,
}

/// Nothing more.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// Asks which files rows are from.
#[derive(Clone, PartialEq, Message)]
pub struct AnalyzePlanRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Program.
    #[prost(string, optional, tag = "3")]
    pub client_type: Option<String>,
    /// Of which rows.
    #[prost(message, optional, tag = "9")]
    pub input_files: Option<InputFiles>,
}

/// Of which rows files are asked for.
#[derive(Clone, PartialEq, Message)]
pub struct InputFiles {
    /// The rows.
    #[prost(message, optional, tag = "1")]
    pub plan: Option<Plan>,
}

/// Which files rows are from.
#[derive(Clone, PartialEq, Message)]
pub struct AnalyzePlanResponse {
    /// They.
    #[prost(message, optional, tag = "7")]
    pub input_files: Option<FileList>,
}

/// Files.
#[derive(Clone, PartialEq, Message)]
pub struct FileList {
    /// Their addresses.
    #[prost(string, repeated, tag = "1")]
    pub files: Vec<String>,
}

/// Asks again for an answer, from a part on.
#[derive(Clone, PartialEq, Message)]
pub struct ReattachExecuteRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Of which execution.
    #[prost(string, tag = "3")]
    pub operation_id: String,
    /// Program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
    /// The last part that came.
    #[prost(string, optional, tag = "5")]
    pub last_response_id: Option<String>,
    /// The server's own name of the session.
    #[prost(string, optional, tag = "6")]
    pub observed_session_id: Option<String>,
}

/// No part of an answer is asked for any more; what is still executed ends.
#[derive(Clone, PartialEq, Message)]
pub struct ReleaseExecuteRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Of which execution.
    #[prost(string, tag = "3")]
    pub operation_id: String,
    /// Program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
    /// All of it.
    #[prost(message, optional, tag = "5")]
    pub all: Option<Empty>,
}

/// Ends executions.
#[derive(Clone, PartialEq, Message)]
pub struct InterruptRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Program.
    #[prost(string, optional, tag = "3")]
    pub client_type: Option<String>,
    /// [`ALL`].
    #[prost(int32, tag = "4")]
    pub kind: i32,
}

/// All executions of the session.
pub const ALL: i32 = 1;

/// Ends a session.
#[derive(Clone, PartialEq, Message)]
pub struct ReleaseSessionRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Program.
    #[prost(string, optional, tag = "3")]
    pub client_type: Option<String>,
}

/// Asks for all of an error.
#[derive(Clone, PartialEq, Message)]
pub struct FetchErrorDetailsRequest {
    /// Session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user_context: Option<UserContext>,
    /// Which, as [`ErrorInfo`] names it.
    #[prost(string, tag = "3")]
    pub error_id: String,
    /// Program.
    #[prost(string, optional, tag = "4")]
    pub client_type: Option<String>,
}

/// An error and its causes.
#[derive(Clone, PartialEq, Message)]
pub struct FetchErrorDetailsResponse {
    /// Where it begins.
    #[prost(int32, optional, tag = "1")]
    pub root: Option<i32>,
    /// All.
    #[prost(message, repeated, tag = "2")]
    pub errors: Vec<ServerError>,
}

/// An error of a server.
#[derive(Clone, PartialEq, Message)]
pub struct ServerError {
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Its cause, by place in the list.
    #[prost(int32, optional, tag = "4")]
    pub cause: Option<i32>,
}

/// What is behind `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// More about the error.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Detail>,
}

/// A message of a kind.
#[derive(Clone, PartialEq, Message)]
pub struct Detail {
    /// Its kind.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// Itself.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorInfo {
    /// Kind of error.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// More.
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
}
