//! Misuse of the front end: the whole text of the messages.
//!
//! Places are printed as `FILE:LINE:COLUMN` of these files; the tests replace them by the text of
//! that line, cut at the column, so that they survive edits.

mod arrays;
mod control;
mod hints;
mod numbers;
mod shapes;
#[path = "../traced/mod.rs"]
mod traced;
mod traces;

use cutlet as ct;
use cutlet::prelude::*;
use traced::{input, output};

/// Replaces each `tests/diagnostics/FILE:LINE:COLUMN` by `<source text from there>`.
fn with_source(text: &str) -> String {
    let sources = [
        ("arrays.rs", include_str!("arrays.rs")),
        ("hints.rs", include_str!("hints.rs")),
        ("control.rs", include_str!("control.rs")),
        ("main.rs", include_str!("main.rs")),
        ("numbers.rs", include_str!("numbers.rs")),
        ("shapes.rs", include_str!("shapes.rs")),
        ("traces.rs", include_str!("traces.rs")),
    ];
    let mut parts = text.split("tests/diagnostics/");
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let mut fields = part.splitn(4, ':');
        let name = fields.next().unwrap();
        let (_, source) = sources.iter().find(|(file, _)| *file == name).unwrap();
        let line: usize = fields.next().unwrap().parse().unwrap();
        let column: usize = fields.next().unwrap().parse().unwrap();
        let code = &source.lines().nth(line - 1).unwrap()[column - 1..];
        result += &format!("<{}>:{}", code.trim_end_matches(';'), fields.next().unwrap());
    }
    result
}

/// Returns a text without its notes on calls, whose places depend on the build.
fn without_calls(text: &str) -> String {
    let tells = |line: &&str| [" is called ", ": kernel `kernel` is traced"].iter().any(|part| line.contains(part));
    text.lines().filter(|line| !tells(line)).collect::<Vec<_>>().join("\n")
}

/// The problems of a kernel without parameters.
#[track_caller]
fn problems(kernel: impl Fn()) -> String {
    with_source(&without_calls(&traced::problems(kernel, ())))
}

/// The problems of a kernel with an array to read and one to write.
#[track_caller]
fn problems_with_arrays<T: Element>(kernel: impl Fn(Array<T, 2>, ArrayMut<T, 2>)) -> String {
    with_source(&without_calls(&traced::problems(kernel, (input::<T, 2>(), output::<T, 2>()))))
}

fn tile(rows: usize, columns: usize) -> Tile<f32, 2> {
    ct::full([rows, columns], 1.5)
}

/// The sum of a vector, as a scalar.
trait SumToScalar {
    fn to_scalar_sum(self) -> Scalar<f32>;
}
impl SumToScalar for Tile<f32, 1> {
    fn to_scalar_sum(self) -> Scalar<f32> {
        self.sum(0).item()
    }
}
