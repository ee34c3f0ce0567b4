//! What may be printed of others' texts.

/// Whether a terminal would obey it, or it would reorder or hide what is read: control characters,
/// bidirectional marks and other invisible ones of Unicode's category Cf.
#[must_use]
pub fn steers_terminal(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}
