//! A file's text and the way from a byte offset to a line and a column.
//!
//! Everything else in this crate speaks of byte ranges; only here do they become what people and
//! editors count: lines from 1, columns from 1 in characters. It knows nothing of YAML.

use std::{cell::OnceCell, fmt};

use keelson_model::limits;

/// A range of bytes of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A point in a text as people count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// Why bytes are not a text that can be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// More than [`limits::VALIDATE_FILE_BYTES`].
    #[error("it has {bytes} bytes, more than the {} that are checked", limits::VALIDATE_FILE_BYTES)]
    TooLarge {
        /// What it has.
        bytes: u64,
    },
    /// A byte sequence that is not UTF-8.
    #[error("it is not UTF-8{}", if *.utf16 { ": it looks like UTF-16" } else { "" })]
    NotUtf8 {
        /// Where the first bad byte stands.
        position: Position,
        /// Whether it begins with a byte order mark of UTF-16.
        utf16: bool,
    },
}

/// A text with its name.
pub struct Source {
    name: String,
    text: String,
    line_starts: OnceCell<Vec<u32>>,
}

// === impl Span ===

impl Span {
    /// From `start` to `end`; offsets above the size limit of a source are cut.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        Self { start, end: u32::try_from(end).unwrap_or(u32::MAX).max(start) }
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

// === impl Source ===

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Source {
    /// A text that is already one. A byte order mark is not part of it.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Self { name: name.into(), text, line_starts: OnceCell::new() }
    }

    /// Bytes of a file, checked for size and encoding.
    ///
    /// # Errors
    /// Too many of them, or not UTF-8.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self, SourceError> {
        if bytes.len() > limits::VALIDATE_FILE_BYTES {
            return Err(SourceError::TooLarge { bytes: bytes.len() as u64 });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(name, text)),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let bytes = error.into_bytes();
                let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
                let good = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default());
                let before = Self::new("", good);
                let position = before.position(before.text.len());
                Err(SourceError::NotUtf8 { position, utf16 })
            }
        }
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part that a span names; empty where there is none.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Line and column of a byte offset; one beyond the end is the end.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let starts = self.line_starts();
        let line = starts.partition_point(|start| *start as usize <= offset).max(1);
        let start = starts.get(line - 1).map_or(0, |start| *start as usize);
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line: count(line), column: count(before.chars().count() + 1) }
    }

    /// The text of a line counted from 1, without its end; `None` beyond the last.
    #[must_use]
    pub fn line(&self, line: u32) -> Option<&str> {
        let starts = self.line_starts();
        let index = (line as usize).checked_sub(1)?;
        let start = *starts.get(index)? as usize;
        let end = starts.get(index + 1).map_or(self.text.len(), |next| *next as usize);
        let text = self.text.get(start..end)?;
        Some(text.trim_end_matches(['\n', '\r']))
    }

    fn line_starts(&self) -> &[u32] {
        self.line_starts.get_or_init(|| {
            let breaks = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(breaks.map(|(at, _)| count(at + 1))).collect()
        })
    }
}

/// Sources are bounded far below 4 GiB.
fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, offset: usize) -> (u32, u32) {
        let position = Source::new("t", text).position(offset);
        (position.line, position.column)
    }

    #[test]
    fn columns_count_characters_and_lines_count_line_feeds() {
        assert_eq!(at("ab\ncd", 0), (1, 1));
        assert_eq!(at("ab\ncd", 3), (2, 1));
        assert_eq!(at("ab\r\ncd", 5), (2, 2));
        assert_eq!(at("ä: ü\nб: x", "ä: ü\nб: ".len()), (2, 4));
        assert_eq!(at("ab", 99), (1, 3));
        assert_eq!(at("", 0), (1, 1));
    }

    #[test]
    fn a_byte_order_mark_moves_nothing() {
        assert_eq!(at("\u{feff}ab", 1), (1, 2));
        assert_eq!(Source::new("t", "\u{feff}ab").text(), "ab");
    }

    #[test]
    fn lines_come_without_their_ends() {
        let source = Source::new("t", "a\r\nb\n");
        assert_eq!(source.line(1), Some("a"));
        assert_eq!(source.line(2), Some("b"));
        assert_eq!(source.line(3), Some(""));
        assert_eq!(source.line(4), None);
        assert_eq!(source.line(0), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        let error = Source::from_bytes("t", b"a: b\nc: \xff\xfe".to_vec());
        let position = Position { line: 2, column: 4 };
        assert!(
            matches!(error, Err(SourceError::NotUtf8 { position: p, utf16: false }) if p == position)
        );
        let error = Source::from_bytes("t", b"\xff\xfea\0".to_vec());
        assert!(matches!(error, Err(SourceError::NotUtf8 { utf16: true, .. })));
    }
}
