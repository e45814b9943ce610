//! Source lines of the user in a kernel's text: `.file` and `.loc` directives.

use std::fmt::{self, Formatter, Write};

use crate::ir::{Loc, Module};

/// The user's source locations in a kernel, by their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceLines {
    /// Names of files as the user's compiler reports them; `.file` counts from 1.
    files: Vec<String>,
    /// File, line and column of a location.
    locs: Vec<Option<(usize, u32, u32)>>,
}

impl SourceLines {
    /// Collects the source locations of instructions, by their numbers.
    pub fn collect(module: &Module, numbers: impl Iterator<Item = u32>) -> SourceLines {
        let mut lines = SourceLines { files: Vec::new(), locs: Vec::new() };
        for loc in numbers {
            let number = loc as usize;
            if number >= lines.locs.len() {
                lines.locs.resize(number + 1, None);
            }
            if lines.locs[number].is_none()
                && let Some(location) = module.location(Loc(loc))
            {
                let known = lines.files.iter().position(|file| **file == *location.file);
                let file = known.unwrap_or_else(|| {
                    lines.files.push(location.file.to_string());
                    lines.files.len() - 1
                });
                lines.locs[number] = Some((file + 1, location.line, location.column));
            }
        }
        lines
    }

    /// Returns the `.file` directives.
    pub fn files(&self) -> String {
        let mut out = String::new();
        for (index, file) in self.files.iter().enumerate() {
            // Strings of PTX have no escapes.
            let name: String = file.chars().map(|c| if "\"\\\n\r".contains(c) { '/' } else { c }).collect();
            let _ = writeln!(out, ".file {} \"{name}\"", index + 1);
        }
        out
    }

    /// Writes the `.loc` directive of a location; nothing for an unknown one.
    pub fn write(&self, loc: u32, f: &mut Formatter<'_>) -> fmt::Result {
        match self.locs.get(loc as usize) {
            Some(Some((file, line, column))) => writeln!(f, "    .loc {file} {line} {column}"),
            _ => Ok(()),
        }
    }
}
