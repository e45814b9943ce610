//! Source lines of the user in a kernel's text: `.file` and `.loc` directives.

use std::fmt::{self, Formatter, Write};

use crate::ir::{Loc, Module};

/// The user's source places in a kernel, by their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceLines {
    /// Names of files as the user's compiler reports them; `.file` counts from 1.
    files: Vec<String>,
    /// File, line and column of a place.
    places: Vec<Option<(usize, u32, u32)>>,
}

impl SourceLines {
    /// Collects the places of instructions, by their numbers.
    pub fn collect(module: &Module, numbers: impl Iterator<Item = u32>) -> SourceLines {
        let mut lines = SourceLines { files: Vec::new(), places: Vec::new() };
        for loc in numbers {
            let number = loc as usize;
            if number >= lines.places.len() {
                lines.places.resize(number + 1, None);
            }
            if lines.places[number].is_none()
                && let Some(place) = module.location(Loc(loc))
            {
                let known = lines.files.iter().position(|file| **file == *place.file);
                let file = known.unwrap_or_else(|| {
                    lines.files.push(place.file.to_string());
                    lines.files.len() - 1
                });
                lines.places[number] = Some((file + 1, place.line, place.column));
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

    /// Writes the `.loc` directive of a place; nothing for an unknown place.
    pub fn write(&self, place: u32, f: &mut Formatter<'_>) -> fmt::Result {
        match self.places.get(place as usize) {
            Some(Some((file, line, column))) => writeln!(f, "    .loc {file} {line} {column}"),
            _ => Ok(()),
        }
    }
}
