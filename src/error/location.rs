//! Places in source text.

use std::borrow::Cow;
use std::fmt;

/// A place in source text: file, line and column, both counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// File name as the compiler saw it.
    pub file: Cow<'static, str>,
    /// Line, counted from 1.
    pub line: u32,
    /// Column, counted from 1.
    pub column: u32,
}

impl Location {
    /// Returns the place of the nearest caller that is not `#[track_caller]`.
    ///
    /// ```
    /// let here = cutlet::Location::caller();
    /// assert!(here.line > 0);
    /// ```
    #[track_caller]
    pub fn caller() -> Location {
        let place = std::panic::Location::caller();
        Location { file: Cow::Borrowed(place.file()), line: place.line(), column: place.column() }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
