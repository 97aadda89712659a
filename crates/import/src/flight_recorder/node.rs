//! One interface to the values of a pickle and of JSON, because PyTorch writes the same dump as
//! either.

use crate::pickle::{Arena, Value};
use serde_json::Value as Json;
use std::borrow::Cow;

/// A value of a dump.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    Pickle(&'a Arena<'a>, Value),
    Json(&'a Json),
}

impl<'a> Node<'a> {
    /// Returns the value under a key.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        match self {
            Node::Pickle(arena, value) => Some(Node::Pickle(arena, arena.get(value, key)?)),
            Node::Json(value) => value.get(key).map(Node::Json),
        }
    }

    /// Returns the items of a list; none if it isn't one.
    pub fn items(self) -> Box<dyn Iterator<Item = Node<'a>> + 'a> {
        match self {
            Node::Pickle(arena, value) => {
                let items = arena.items(value).unwrap_or_default().iter();
                Box::new(items.map(move |item| Node::Pickle(arena, *item)))
            }
            Node::Json(value) => Box::new(
                value.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(Node::Json),
            ),
        }
    }

    /// Returns the values of a dictionary; none if it isn't one.
    pub fn values(self) -> Box<dyn Iterator<Item = Node<'a>> + 'a> {
        match self {
            Node::Pickle(arena, value) => {
                let pairs = arena.pairs(value).unwrap_or_default().iter();
                Box::new(pairs.map(move |(_, value)| Node::Pickle(arena, *value)))
            }
            Node::Json(value) => {
                Box::new(value.as_object().into_iter().flat_map(|map| map.values()).map(Node::Json))
            }
        }
    }

    /// Returns the text; `None` if it isn't one.
    pub fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Node::Pickle(arena, value) => arena.text(value).map(String::from_utf8_lossy),
            Node::Json(value) => value.as_str().map(Cow::Borrowed),
        }
    }

    /// Returns the number; `None` if it isn't one, or negative.
    pub fn number(self) -> Option<u64> {
        match self {
            Node::Pickle(_, value) => value.unsigned(),
            Node::Json(value) => value.as_u64(),
        }
    }

    /// Whether it is true.
    pub fn is_true(self) -> bool {
        matches!(self, Node::Pickle(_, Value::Bool(true)) | Node::Json(Json::Bool(true)))
    }
}
