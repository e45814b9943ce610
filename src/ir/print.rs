//! The textual form of a module.

use std::fmt;

use super::Module;

/// What the text of a module shows besides its ops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintOptions {
    /// Append the user's place to every op as `loc("file":line:column)`.
    pub locations: bool,
}

impl Module {
    /// The module as text in the syntax of Tile IR.
    pub fn to_text(&self, _options: PrintOptions) -> String {
        String::new()
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(PrintOptions::default()))
    }
}
