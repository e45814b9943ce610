//! Names in the text of a module: the character classes that the parser reads and the verifier
//! requires.

/// Returns true for a character of a word: a letter, a digit or `_`.
pub(super) fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns true for a character of the name of a value, an entry or a global.
pub(super) fn is_symbol_char(c: char) -> bool {
    is_word_char(c) || matches!(c, '-' | '$' | '.')
}

/// Returns true for a word: the target or the key of a hint.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_word_char)
}

/// Returns true for an identifier: the name of an entry or a global.
pub(super) fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_symbol_char)
}
