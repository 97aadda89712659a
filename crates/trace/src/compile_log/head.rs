//! Parses the JSON of a log line: one event, and the compilation that the event belongs to.

use super::json::Last;
use super::log::CompileId;
use super::metrics::Metrics;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The JSON of a line.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// The event's name; empty if the line has none.
    pub event: String,
    pub content: Content,
    pub id: CompileId,
    pub attempt: Option<u32>,
    pub rank: Option<u32>,
    pub has_payload: bool,
}

/// The part of an event's content that is used.
#[derive(Debug, Default)]
pub(super) enum Content {
    #[default]
    Nothing,
    Artifact(String),
    Metrics(Box<Metrics>),
    /// A compilation starts. The value is the innermost frame of its stack.
    Start(Option<StackFrame>),
    Code(Option<String>),
    Text(String, u64),
}

/// A frame of a stack. Its file is a number, which an earlier `str` event defines.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StackFrame {
    pub line: Option<u32>,
    pub name: Option<String>,
    pub filename: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Artifact {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StartEvent {
    stack: Option<Last<StackFrame>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Code {
    filename: Option<String>,
    file_path: Option<String>,
}

/// Parses a line's JSON. The caller counts a line as damaged if this fails.
pub(super) fn parse(json: &[u8]) -> Result<Head, serde_json::Error> {
    serde_json::from_slice(json)
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Head, D::Error> {
        deserializer.deserialize_map(HeadVisitor)
    }
}

struct HeadVisitor;

impl<'de> Visitor<'de> for HeadVisitor {
    type Value = Head;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head, A::Error> {
        let mut head = Head::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "frame_id" => head.id.frame = map.next_value()?,
                "frame_compile_id" => head.id.compile = map.next_value()?,
                "compiled_autograd_id" => head.id.autograd = map.next_value()?,
                "attempt" => head.attempt = map.next_value()?,
                "rank" => head.rank = map.next_value()?,
                "has_payload" => {
                    map.next_value::<IgnoredAny>()?;
                    head.has_payload = true;
                }
                // These fields only describe the context of an event. A line that has a `stack` and
                // no other event is itself the event `stack`.
                "stack" | "process" | "thread" | "timestamp" | "pathname" | "lineno"
                | "is_forward" => {
                    map.next_value::<IgnoredAny>()?;
                    if head.event.is_empty() && key == "stack" {
                        head.event = key;
                    }
                }
                _ => {
                    head.content = content(&key, &mut map)?;
                    head.event = key;
                }
            }
        }
        Ok(head)
    }
}

fn content<'de, A: MapAccess<'de>>(event: &str, map: &mut A) -> Result<Content, A::Error> {
    Ok(match event {
        "artifact" => Content::Artifact(map.next_value::<Artifact>()?.name),
        "str" => {
            let (text, number) = map.next_value()?;
            Content::Text(text, number)
        }
        "dynamo_start" => {
            let start = map.next_value::<StartEvent>()?;
            Content::Start(start.stack.and_then(|stack| stack.0))
        }
        "inductor_output_code" => {
            let code = map.next_value::<Code>()?;
            Content::Code(code.file_path.or(code.filename))
        }
        _ if is_metrics(event) => Content::Metrics(Box::new(map.next_value()?)),
        _ => {
            map.next_value::<IgnoredAny>()?;
            Content::Nothing
        }
    })
}

fn is_metrics(event: &str) -> bool {
    matches!(
        event,
        "compilation_metrics"
            | "bwd_compilation_metrics"
            | "aot_autograd_backward_compilation_metrics"
            | "compilation_metrics_runtime"
            | "bwd_compilation_metrics_runtime"
    )
}
