//! Formats the arguments of calls as JSON, in the way in which PyTorch's traces do.

use tprof_wire::calls::{Effect, Function, NO_BYTES};

/// Formats the arguments of a call as a JSON object; `None` if no argument is known.
pub(super) fn arguments(
    function: &Function,
    kind: u32,
    stream: u64,
    detail: u64,
) -> Option<String> {
    let in_stream = |text: String| match stream {
        0 => format!("{{{text}}}"),
        stream if text.is_empty() => format!(r#"{{"stream":"{stream:#x}"}}"#),
        stream => format!(r#"{{{text},"stream":"{stream:#x}"}}"#),
    };
    Some(match function.does {
        Effect::Copies { .. } => {
            let name = ["HtoH", "HtoD", "DtoH", "DtoD", "Default"];
            let kind = kind.checked_sub(1).and_then(|kind| name.get(kind as usize));
            let kind = kind.map_or(String::new(), |kind| format!(r#","kind":"{kind}""#));
            in_stream(format!(r#""bytes":{detail}{kind}"#))
        }
        Effect::Allocates { .. } | Effect::Maps(_) if detail > 0 => {
            in_stream(format!(r#""bytes":{detail}"#))
        }
        Effect::Selects => format!(r#"{{"device":{detail}}}"#),
        Effect::Meets { .. } => {
            let bytes = (detail != NO_BYTES).then(|| format!(r#""bytes":{detail}"#));
            let ranks = (stream != 0).then(|| format!(r#""ranks":{stream}"#));
            let peer = kind.checked_sub(1).map(|peer| format!(r#""peer":{peer}"#));
            let parts: Vec<String> = [bytes, ranks, peer].into_iter().flatten().collect();
            return (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(",")));
        }
        _ if stream != 0 => in_stream(String::new()),
        _ => return None,
    })
}

/// Formats the kernel and the stream of a launch; `None` if neither is known.
pub(super) fn launch_arguments(kernel: Option<&str>, stream: u64) -> Option<String> {
    let kernel = kernel.map(|name| format!(r#""kernel":{}"#, serde_json::Value::from(name)));
    let stream = (stream != 0).then(|| format!(r#""stream":"{stream:#x}""#));
    let parts: Vec<String> = kernel.into_iter().chain(stream).collect();
    (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(",")))
}
