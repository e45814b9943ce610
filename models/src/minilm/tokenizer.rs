//! WordPiece (Schuster and Nakajima, 2012) as BERT has it: text without accents and in lower case,
//! split at blanks and punctuation, and each word split into the longest pieces of a vocabulary
//! from left to right.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// A longer word is an unknown one.
const LONGEST_WORD: usize = 100;

/// A vocabulary of word pieces.
pub struct Tokenizer {
    ids: HashMap<String, u32>,
    unknown: u32,
    begin: u32,
    end: u32,
}

/// Returns true if a character is a word of its own: ASCII other than letters and digits, or
/// Unicode punctuation.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// Returns true for ideographs, which are words of their own.
fn is_ideograph(c: char) -> bool {
    matches!(c as u32, 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2a6df | 0x2a700..=0x2ceaf
        | 0x2f800..=0x2fa1f)
}

/// Returns true for characters that a text may have and that are dropped.
fn is_control(c: char) -> bool {
    c == '\u{fffd}' || (c.general_category_group() == GeneralCategoryGroup::Other && !matches!(c, '\t' | '\n' | '\r'))
}

impl Tokenizer {
    /// Reads a vocabulary with a piece a line, whose id is the number of the line.
    ///
    /// # Errors
    /// The vocabulary has no `[UNK]`, `[CLS]` or `[SEP]`.
    pub fn new(vocabulary: &str) -> Result<Tokenizer, String> {
        let ids: HashMap<String, u32> = vocabulary.lines().zip(0..).map(|(piece, id)| (piece.to_owned(), id)).collect();
        let id = |piece: &str| ids.get(piece).copied().ok_or_else(|| format!("the vocabulary has no {piece}"));
        Ok(Tokenizer { unknown: id("[UNK]")?, begin: id("[CLS]")?, end: id("[SEP]")?, ids })
    }

    /// Returns the ids of a sentence, at most `longest` of them. The first one is `[CLS]`, the last
    /// one `[SEP]`.
    pub fn encode(&self, text: &str, longest: usize) -> Vec<u32> {
        let mut ids = vec![self.begin];
        for word in words(text) {
            self.pieces(&word, &mut ids);
        }
        ids.truncate(longest.max(2) - 1);
        ids.push(self.end);
        ids
    }

    /// Appends the longest pieces of a word, or the unknown one.
    fn pieces(&self, word: &str, ids: &mut Vec<u32>) {
        let (first, mut from) = (ids.len(), 0);
        let ends: Vec<usize> = word.char_indices().map(|(at, _)| at).skip(1).chain([word.len()]).collect();
        let known = ends.len() <= LONGEST_WORD && {
            loop {
                let piece = |end: usize| match from {
                    0 => self.ids.get(&word[..end]),
                    _ => self.ids.get(&format!("##{}", &word[from..end])),
                };
                let longest =
                    ends.iter().rev().take_while(|&&end| end > from).find_map(|&end| Some((end, *piece(end)?)));
                match longest {
                    None => break false,
                    Some((end, id)) => {
                        ids.push(id);
                        from = end;
                    }
                }
                if from == word.len() {
                    break true;
                }
            }
        };
        if !known {
            ids.truncate(first);
            ids.push(self.unknown);
        }
    }
}

/// Splits a text into words.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let plain = text.chars().filter(|&c| !is_control(c)).nfd();
    let plain = plain.filter(|c| c.general_category() != GeneralCategory::NonspacingMark);
    for c in plain.flat_map(char::to_lowercase) {
        if c.is_whitespace() {
            words.push(String::new());
        } else if is_punctuation(c) || is_ideograph(c) {
            words.extend([c.to_string(), String::new()]);
        } else if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_no_accents_and_end_at_punctuation() {
        assert_eq!(words(" Crème\tBRÛLÉE, 3.5%! "), ["creme", "brulee", ",", "3", ".", "5", "%", "!"]);
        assert_eq!(words("東京\u{0}x y"), ["東", "京", "x", "y"]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn words_are_their_longest_pieces() -> Result<(), String> {
        let tokenizer = Tokenizer::new("[UNK]\n[CLS]\n[SEP]\ntoken\n##ize\n##iz\n##r\n.\n")?;
        assert_eq!(tokenizer.encode("Tokenizer. tokens", 9), [1, 3, 4, 6, 7, 0, 2]);
        assert_eq!(tokenizer.encode("token token token", 4), [1, 3, 3, 2]);
        assert!(Tokenizer::new("[CLS]").is_err());
        Ok(())
    }
}
