//! The tree of values of one document, each with its place in the text.
//!
//! This is what JSON can say, so what the API server sees after it has read YAML: aliases are
//! expanded and merge keys applied. A value that stands behind an alias has the alias as its place
//! and remembers where it was written. The tree knows neither its syntax nor any schema.

use std::borrow::Cow;

use crate::source::Span;

/// Where something stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// In the text: for what an alias brings in, the alias.
    pub span: Span,
    /// For what an alias brings in: where it is written.
    pub definition: Option<Span>,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// What.
    pub value: Value<'a>,
    /// Where.
    pub place: Place,
}

/// What JSON can say. Numbers are as the API server keeps them: 64-bit integers where they fit.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number without a fraction that fits.
    Int(i64),
    /// Any other number; never NaN or infinite.
    Float(f64),
    /// A text.
    String(Cow<'a, str>),
    /// A list.
    List(Vec<Node<'a>>),
    /// An object.
    Map(Vec<Entry<'a>>),
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub key: Cow<'a, str>,
    /// Where the name stands.
    pub key_place: Place,
    /// Its value.
    pub value: Node<'a>,
}

// === impl Place ===

impl Place {
    /// A place that is not behind an alias.
    #[must_use]
    pub fn at(span: Span) -> Self {
        Self { span, definition: None }
    }

    /// The same thing, brought in by an alias.
    #[must_use]
    pub fn through(self, alias: Span) -> Self {
        Self { span: alias, definition: Some(self.definition.unwrap_or(self.span)) }
    }
}

// === impl Node ===

impl<'a> Node<'a> {
    /// The field of an object by its name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Entry<'a>> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The value that stands at the end of a chain of field names.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Node<'a>> {
        path.iter().try_fold(self, |node, key| node.get(key).map(|entry| &entry.value))
    }

    /// The text at the end of a chain of field names.
    #[must_use]
    pub fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path).and_then(Node::as_str)
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The entries of an object; none for anything else.
    #[must_use]
    pub fn entries(&self) -> &[Entry<'a>] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none for anything else.
    #[must_use]
    pub fn items(&self) -> &[Node<'a>] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The same value as brought in by an alias: every place in it becomes the alias.
    #[must_use]
    pub fn through(&self, alias: Span) -> Self {
        let value = match &self.value {
            Value::List(items) => {
                Value::List(items.iter().map(|item| item.through(alias)).collect())
            }
            Value::Map(entries) => {
                Value::Map(entries.iter().map(|entry| entry.through(alias)).collect())
            }
            scalar => scalar.clone(),
        };
        Self { value, place: self.place.through(alias) }
    }
}

// === impl Entry ===

impl Entry<'_> {
    /// The same entry as brought in by an alias.
    #[must_use]
    pub fn through(&self, alias: Span) -> Self {
        Self {
            key: self.key.clone(),
            key_place: self.key_place.through(alias),
            value: self.value.through(alias),
        }
    }
}

// === impl Value ===

impl Value<'_> {
    /// What messages call its type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Float(_) => "number",
            Self::String(_) => "string",
            Self::List(_) => "array",
            Self::Map(_) => "object",
        }
    }

    /// The value as JSON, for messages and for comparing with what a schema lists.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => Json::from(*value),
            Self::Float(value) => Json::from(*value),
            Self::String(text) => Json::from(text.as_ref()),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone().into_owned(), entry.value.value.to_json()))
                    .collect(),
            ),
        }
    }
}
