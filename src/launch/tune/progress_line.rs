//! Progress line of a search in a terminal.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};

/// Limit of characters in the line: fewer than a line of any terminal has.
const WIDTH: usize = 78;

/// Status line that is overwritten, with permanent lines above it.
pub(super) struct Line(RefCell<Box<dyn Write>>);

impl Line {
    /// Returns the line of standard error; `None` if it is no terminal.
    pub fn of_stderr() -> Option<Line> {
        let stderr = std::io::stderr();
        stderr.is_terminal().then(|| Line::new(stderr))
    }

    fn new(out: impl Write + 'static) -> Line {
        Line(RefCell::new(Box::new(out)))
    }

    /// Replaces the text of the status line.
    pub fn now(&self, text: &str) {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WIDTH).collect();
        self.write(format_args!("\r\x1b[2K{text}"));
    }

    /// Writes a permanent line.
    pub fn stay(&self, text: &str) {
        self.write(format_args!("\r\x1b[2K{text}\n"));
    }

    /// Clears the status line.
    pub fn clear(&self) {
        self.write(format_args!("\r\x1b[2K"));
    }

    /// Writes text and ignores errors: a closed terminal must not end a search.
    fn write(&self, text: std::fmt::Arguments<'_>) {
        let mut out = self.0.borrow_mut();
        let _ = out.write_fmt(text).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_line_is_written_over_and_others_stay() {
        let out = Rc::new(RefCell::new(Vec::new()));
        let line = Line::new(Shared(out.clone()));
        line.now("1 of 2: a\nb");
        line.stay("a: 3.0 us");
        line.now(&"x".repeat(100));
        line.clear();
        let text = String::from_utf8(out.borrow().clone()).unwrap();
        let over = "\r\x1b[2K";
        assert_eq!(text, format!("{over}1 of 2: a b{over}a: 3.0 us\n{over}{}{over}", "x".repeat(WIDTH)));
    }
}
