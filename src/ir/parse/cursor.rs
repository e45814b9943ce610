//! Cursor over a text: words, numbers, punctuation and positions. White space only separates.

use std::str::FromStr;

use crate::ir::name::{is_symbol_char, is_word_char};

/// Error message with its position in bytes.
#[derive(Debug)]
pub(super) struct Problem {
    pub at: usize,
    pub message: String,
}

pub(super) type Parsed<T> = Result<T, Problem>;

pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Returns the rest of the text without leading white space.
    fn next(&self) -> &'t str {
        self.rest().trim_start()
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.next().len();
    }

    /// Returns the position of the next token.
    pub fn position(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    /// Returns line and column, counted from 1.
    pub fn line_and_column(&self, at: usize) -> (u32, u32) {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line as u32, column as u32)
    }

    pub fn fail<T>(&mut self, message: impl Into<String>) -> Parsed<T> {
        let at = self.position();
        self.fail_at(at, message)
    }

    pub fn fail_at<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        Err(Problem { at, message: message.into() })
    }

    pub fn at_end(&self) -> bool {
        self.next().is_empty()
    }

    pub fn is_next(&self, sign: &str) -> bool {
        self.next().starts_with(sign)
    }

    /// Returns true if the next two tokens are these.
    pub fn are_next(&self, first: &str, second: &str) -> bool {
        self.next().strip_prefix(first).is_some_and(|rest| rest.trim_start().starts_with(second))
    }

    /// Consumes a token if it is the next one.
    pub fn eat(&mut self, sign: &str) -> bool {
        let seen = self.is_next(sign);
        if seen {
            self.skip_space();
            self.at += sign.len();
        }
        seen
    }

    pub fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.eat(sign) { Ok(()) } else { self.fail(format!("expected `{sign}`")) }
    }

    fn taken(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        self.skip_space();
        let rest = self.rest();
        let taken = &rest[..rest.find(|c: char| !is_part(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Returns the next word without consuming it.
    pub fn peek_word(&self) -> &'t str {
        let next = self.next();
        &next[..next.find(|c: char| !is_word_char(c)).unwrap_or(next.len())]
    }

    /// Parses a word of letters, digits and `_`.
    pub fn word(&mut self) -> Parsed<&'t str> {
        match self.taken(is_word_char) {
            "" => self.fail("expected a word"),
            word => Ok(word),
        }
    }

    pub fn eat_word(&mut self, word: &str) -> bool {
        self.peek_word() == word && self.eat(word)
    }

    pub fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { self.fail(format!("expected `{word}`")) }
    }

    /// Parses the name of a value or an entry, which may also contain `-`, `$` and `.`.
    pub fn symbol(&mut self) -> Parsed<&'t str> {
        match self.taken(is_symbol_char) {
            "" => self.fail("expected a name"),
            name => Ok(name),
        }
    }

    /// Parses a decimal number.
    pub fn integer<T: FromStr>(&mut self) -> Parsed<T> {
        let at = self.position();
        let minus = if self.eat("-") { "-" } else { "" };
        let text = format!("{minus}{}", self.taken(|c| c.is_ascii_digit()));
        text.parse().or_else(|_| self.fail_at(at, "expected a number that fits here"))
    }

    /// Consumes the characters of a number: signs, digits, letters, points.
    pub fn number(&mut self) -> &'t str {
        self.taken(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'))
    }

    /// Consumes the rest of the line.
    pub fn line(&mut self) -> &'t str {
        let rest = self.rest();
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        self.at += line.len();
        line
    }

    /// Parses a quoted string. Bytes other than printable ones are `\` and two hexadecimal digits.
    pub fn quoted(&mut self) -> Parsed<String> {
        let at = self.position();
        self.expect("\"")?;
        let mut bytes = Vec::new();
        let mut rest = self.rest().bytes().enumerate();
        loop {
            match rest.next() {
                Some((i, b'"')) => {
                    self.at += i + 1;
                    let text = String::from_utf8(bytes);
                    return text.or_else(|_| self.fail_at(at, "the string is no UTF-8"));
                }
                Some((i, b'\\')) => match self.rest().get(i + 1..i + 3) {
                    Some(escaped) if escaped.starts_with('\\') => {
                        bytes.push(b'\\');
                        rest.next();
                    }
                    Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                        bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
                        rest.nth(1);
                    }
                    _ => return self.fail_at(at, "an unknown escape sequence in the string"),
                },
                Some((_, byte)) => bytes.push(byte),
                None => return self.fail_at(at, "the string has no end"),
            }
        }
    }
}
