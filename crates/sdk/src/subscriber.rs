//! Records spans and events of the crate `tracing` as spans and marks. Needs the feature `tracing`.

use crate::recording::mark;
use crate::span::{span, Span};
use crate::value::Value;
use std::cell::RefCell;
use std::fmt::{Debug, Write};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

thread_local! {
    /// Spans that this thread has entered.
    static ENTERED: RefCell<Vec<(Id, Span)>> = const { RefCell::new(Vec::new()) };
}

/// A layer for `tracing_subscriber`'s registry: see [`layer`].
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    events: bool,
}

/// Returns a layer that records each entry into a span of `tracing` as a span of tprof. Fields
/// become arguments, and `tracing_id` joins the parts of a span that is entered several times.
/// Events become marks. It can be filtered like any layer: `tprof::layer().with_filter(…)`.
///
/// The layer is meant for programs that already use `tracing`: the registry of `tracing` costs more
/// than a span of this crate.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
/// let all = tracing_subscriber::registry().with(tprof::layer());
/// tracing::subscriber::with_default(all, || {
///     let _request = tracing::info_span!("request", id = 7).entered();
///     tracing::info!("read");
/// });
/// ```
pub fn layer() -> Layer {
    Layer { events: true }
}

impl Layer {
    /// Sets whether events become marks, which they do by default.
    pub fn with_events(self, events: bool) -> Layer {
        Layer { events }
    }
}

/// Fields of a span that has not ended.
#[derive(Default)]
struct Fields(Vec<(&'static str, FieldValue)>);

enum FieldValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

impl FieldValue {
    fn value(&self) -> Value<'_> {
        match self {
            FieldValue::Unsigned(value) => (*value).into(),
            FieldValue::Signed(value) => (*value).into(),
            FieldValue::Float(value) => (*value).into(),
            FieldValue::Bool(value) => (*value).into(),
            FieldValue::Text(text) => text.into(),
        }
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: FieldValue) {
        match self.0.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, old)) => *old = value,
            None => self.0.push((field.name(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, FieldValue::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, FieldValue::Signed(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, FieldValue::Unsigned(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, FieldValue::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, FieldValue::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, FieldValue::Text(format!("{value:?}")));
    }
}

/// Text of an event: its message, then its fields.
#[derive(Default)]
struct Message {
    text: String,
    fields: String,
}

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.text.push_str(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.is_empty() || !crate::is_recording() {
            return;
        }
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|_| crate::is_recording()) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<Fields>().is_none() {
            extensions.insert(Fields::default());
        }
        let Some(fields) = extensions.get_mut::<Fields>() else { return };
        values.record(fields);
        ENTERED.with(|entered| {
            let entered = entered.borrow();
            if let Some((_, open)) = entered.iter().rev().find(|(of, _)| of == id) {
                describe(open, fields);
            }
        });
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(of) = context.span(id) else { return };
        let open = span(of.metadata().name());
        if !open.is_recorded() {
            return;
        }
        open.record("tracing_id", id.into_u64());
        if let Some(fields) = of.extensions().get::<Fields>() {
            describe(&open, fields);
        }
        ENTERED.with(|entered| entered.borrow_mut().push((id.clone(), open)));
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let left = ENTERED.with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|(of, _)| of == id)?;
            Some(entered.remove(at))
        });
        drop(left);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if self.events && crate::is_recording() {
            let mut message = Message::default();
            event.record(&mut message);
            message.text.push_str(&message.fields);
            match message.text.is_empty() {
                true => mark(event.metadata().name()),
                false => mark(message.text.trim_start()),
            }
        }
    }
}

fn describe(open: &Span, fields: &Fields) {
    for (name, value) in &fields.0 {
        open.record(name, value.value());
    }
}
