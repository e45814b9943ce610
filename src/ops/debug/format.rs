//! Text that contains values of the kernel.
//!
//! `std::fmt` parses the format. During the formatting of a message, a tile or scalar writes a mark
//! to the text and records its format. The result is a C `printf` format with its values. Their
//! types are those that all back ends print: i32, i64, f32, f64.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, RandomState};

use crate::dtype::DType;
use crate::element::{AnyFloat, Element, Int};
use crate::ir::Value;
use crate::ops::elementwise::convert::{Kind, convert};
use crate::tile::{Handle, Place, Scalar, Tile, Trace, ValueHandle, is_tracing, record};

/// Notation of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    Plain,
    LowerHex,
    UpperHex,
    Octal,
    LowerExp,
    UpperExp,
}

/// Format of one value.
#[derive(Clone, Copy)]
struct Spec {
    raw: ValueHandle,
    kind: Kind,
    style: Style,
    width: Option<usize>,
    precision: Option<usize>,
    plus: bool,
    zeros: bool,
    left: bool,
    alternate: bool,
    /// The alignment or fill is not available in C.
    fancy: bool,
}

/// The values of a message, whose numbers are in marks in the text.
struct Marked {
    /// Text before the number of a value. A part of it is random for each message, so that neither
    /// other text nor marks of other messages are parsed as values.
    opening: String,
    specs: Vec<Spec>,
}

thread_local! {
    /// The values of the message that this thread is formatting.
    static MARKED: RefCell<Option<Marked>> = const { RefCell::new(None) };
}

/// First and last character of a mark, from a private use area of Unicode.
const MARK: char = '\u{F8FE}';

/// Guard that collects values. Its drop restores the enclosing message, if any.
struct Collecting(Option<Marked>);

impl Collecting {
    fn start() -> Collecting {
        // A new state has random keys.
        let drawn = RandomState::new().hash_one(MARK);
        Collecting(MARKED.replace(Some(Marked { opening: format!("{MARK}{drawn:016x}:"), specs: Vec::new() })))
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        MARKED.set(self.0.take());
    }
}

fn mark(
    f: &mut fmt::Formatter<'_>,
    style: Style,
    raw: ValueHandle,
    kind: Kind,
    outside: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let spec = Spec {
        raw,
        kind,
        style,
        width: f.width(),
        precision: f.precision(),
        plus: f.sign_plus(),
        zeros: f.sign_aware_zero_pad(),
        left: matches!(f.align(), Some(fmt::Alignment::Left)),
        alternate: f.alternate(),
        fancy: f.fill() != ' ' || matches!(f.align(), Some(fmt::Alignment::Center)),
    };
    let text = MARKED.with_borrow_mut(|marked| {
        let Marked { opening, specs } = marked.as_mut()?;
        specs.push(spec);
        Some(format!("{opening}{}{MARK}", specs.len() - 1))
    });
    match text {
        Some(text) => f.write_str(&text),
        None => outside(f),
    }
}

macro_rules! formats {
    ($($trait:ident $style:ident $bound:ident;)+) => {$(
        impl<T: $bound> fmt::$trait for Scalar<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let outside = |f: &mut fmt::Formatter<'_>| write!(f, "{}, known when the kernel runs", T::NAME);
                mark(f, Style::$style, self.raw(), Kind::of::<T>(), outside)
            }
        }
        impl<T: $bound, const R: usize> fmt::$trait for Tile<T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                mark(f, Style::$style, self.raw(), Kind::of::<T>(), |f| match is_tracing() {
                    true => write!(f, "{} {:?}, known when the kernel runs", T::NAME, self.shape()),
                    false => write!(f, "{} of {R} axes, known when its kernel runs", T::NAME),
                })
            }
        }
    )+};
}
formats! {
    Display Plain Element;
    Debug Plain Element;
    LowerHex LowerHex Int;
    UpperHex UpperHex Int;
    Octal Octal Int;
    LowerExp LowerExp AnyFloat;
    UpperExp UpperExp AnyFloat;
}

/// Part of a message.
enum Piece {
    Text(String),
    Value(Spec),
}

/// A message, parsed into pieces.
pub(crate) struct Message(Vec<Piece>);

impl Message {
    /// Formats the message. This calls the user's implementations of the formatting traits.
    pub fn of(message: fmt::Arguments<'_>) -> Message {
        let collecting = Collecting::start();
        let mut text = String::new();
        // Only the user's formatting can fail. The text up to the failure remains.
        let _ = text.write_fmt(message);
        let marked = MARKED.take();
        drop(collecting);
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        if let Some(Marked { opening, specs }) = marked {
            while let Some((before, number, after)) = next_mark(rest, &opening) {
                match number.parse::<usize>().ok().and_then(|number| specs.get(number)) {
                    Some(&spec) => pieces.extend([Piece::Text(before.into()), Piece::Value(spec)]),
                    None => pieces.push(Piece::Text(format!("{before}{opening}{number}{MARK}"))),
                }
                rest = after;
            }
        }
        pieces.push(Piece::Text(rest.into()));
        Message(pieces)
    }

    /// Returns the text if it contains no values.
    pub fn plain(&self) -> Option<String> {
        self.0.iter().map(|piece| if let Piece::Text(text) = piece { Some(text.as_str()) } else { None }).collect()
    }

    /// Records the values as they are printed, and returns the format and the values. Returns
    /// `None` after an error.
    pub fn record(&self, t: &mut Trace, place: Place, name: &str) -> Option<(String, Vec<Value>)> {
        let (mut format, mut values, mut fine) = (String::new(), Vec::new(), true);
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => format.push_str(&text.replace('%', "%%")),
                Piece::Value(spec) => match spec.record(t, place, name) {
                    Some(value) => {
                        format.push_str(&spec.conversion());
                        values.push(value);
                    }
                    None => fine = false,
                },
            }
        }
        if format.contains('\0') {
            t.report(
                place,
                format!("`{name}`: there is a NUL in the text"),
                &["where a text ends, C ends it with a NUL"],
            );
            fine = false;
        }
        fine.then_some((format, values))
    }
}

/// Returns the text before the next mark, the number in the mark, and the text after it.
fn next_mark<'t>(text: &'t str, opening: &str) -> Option<(&'t str, &'t str, &'t str)> {
    let (before, rest) = text.split_once(opening)?;
    let (number, after) = rest.split_once(MARK)?;
    Some((before, number, after))
}

impl Spec {
    fn is_signed(&self) -> bool {
        self.kind.signed && self.style == Style::Plain
    }

    /// The type of the printed value.
    fn printed(&self) -> DType {
        match self.kind.dtype {
            wide @ (DType::I64 | DType::F64) => wide,
            float if float.is_float() => DType::F32,
            _ => DType::I32,
        }
    }

    fn record(&self, t: &mut Trace, place: Place, name: &str) -> Option<Value> {
        if self.fancy {
            let message = format!("`{name}`: values of the kernel are aligned left or right, and filled with blanks");
            t.report(place, message, &["`{x:<8}` and `{x:>8}` align; `{x:08}` fills with zeros"]);
            return None;
        }
        let value = t.check_usable(self.raw, place)?;
        let source = Kind { dtype: self.kind.dtype, signed: self.is_signed() };
        let target = Kind { dtype: self.printed(), signed: self.is_signed() };
        let shape = t.builder.module.shape(value).to_vec();
        Some(convert(t, value, source, target, &shape))
    }

    fn conversion(&self) -> String {
        let float = self.printed().is_float();
        let letter = match self.style {
            Style::Plain if float => {
                if self.precision.is_some() {
                    "f"
                } else {
                    "g"
                }
            }
            Style::Plain => {
                if self.is_signed() {
                    "d"
                } else {
                    "u"
                }
            }
            Style::LowerHex => "x",
            Style::UpperHex => "X",
            Style::Octal => "o",
            Style::LowerExp => "e",
            Style::UpperExp => "E",
        };
        let mut text = String::from("%");
        let hexadecimal = matches!(self.style, Style::LowerHex | Style::UpperHex | Style::Octal);
        let flags = [
            ('#', self.alternate && hexadecimal),
            ('+', self.plus && (float || self.is_signed())),
            ('0', self.zeros),
            ('-', self.left && !self.zeros),
        ];
        text.extend(flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag));
        if let Some(width) = self.width {
            text.push_str(&width.to_string());
        }
        // The precision of an integer has no effect in Rust, but sets the number of digits in C.
        if let Some(precision) = self.precision.filter(|_| float) {
            text.push_str(&format!(".{precision}"));
        }
        text + if self.printed() == DType::I64 { "ll" } else { "" } + letter
    }
}

/// Records the message of a print or an assertion at `place`. Returns `None` after an error.
pub(crate) fn traced(place: Place, name: &str, message: &Message) -> Option<(String, Vec<Value>)> {
    record(|t| {
        t.at(place);
        message.record(t, place, name)
    })
}
