//! Makes text from the cluster safe to print: names, labels and messages are others' input.
//!
//! A terminal obeys control characters, and bidirectional marks reorder what is read; both are
//! shown as escapes instead.

use std::{borrow::Cow, fmt::Write as _};

use keelson_model::steers_terminal as steers;

/// `text` with every character that could steer a terminal written as `\u{..}`.
#[must_use]
pub fn terminal(text: &str) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if steers(character) {
            let _ = write!(escaped, "\\u{{{:x}}}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// As `terminal`, but line breaks stay: for texts of several lines that are ours.
#[must_use]
pub fn lines(text: &str) -> String {
    let escaped: Vec<Cow<'_, str>> = text.split('\n').map(terminal).collect();
    escaped.join("\n")
}

/// JSON text with the characters that JSON allows and a terminal obeys written as `\uXXXX`. They
/// stand only inside strings, so that the value stays the same.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    let mut units = [0_u16; 2];
    for character in text.chars() {
        if steers(character) {
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_and_the_rest_is_kept() {
        const ROWS: &[(&str, &str)] = &[
            ("web-1", "web-1"),
            ("größe 東京", "größe 東京"),
            ("\x1b[31mred\x1b[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("a\r\nb", "a\\u{d}\\u{a}b"),
            ("c1\u{9b}31m", "c1\\u{9b}31m"),
            ("bidi\u{202e}txt", "bidi\\u{202e}txt"),
            ("del\u{7f}", "del\\u{7f}"),
        ];
        for (text, expected) in ROWS {
            assert_eq!(terminal(text), *expected);
        }
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({"name": "a\u{9b}b\u{202e}c\u{e0001}d\x1b", "plain": "ä"});
        let text = value.to_string();
        let escaped = json(&text);
        assert!(!escaped.chars().any(steers));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    #[test]
    fn line_breaks_of_our_own_stay() {
        assert_eq!(lines("a\n\x1bb"), "a\n\\u{1b}b");
    }
}
