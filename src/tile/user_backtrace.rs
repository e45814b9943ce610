//! Call chain of the user's functions that led to a problem, parsed from a captured backtrace.
//!
//! `#[track_caller]` provides one place. For a helper function that several kernels call, the
//! places of its callers are needed as well. They are on the stack during tracing. The backtrace is
//! captured only when a problem is reported.
//!
//! The content depends on the build: places need line tables (Cargo's profile `dev` has them,
//! `debug = "line-tables-only"` adds them to other profiles), names need symbols. Independent of
//! the trace.

use crate::util::collect::CollectVec as _;
use std::backtrace::{Backtrace, BacktraceStatus};

use crate::error::{Location, Note};

/// The function that runs a kernel. Frames outside of it do not belong to the kernel.
const ROOT: &str = "::trace_into_module";
/// The maximum number of reported calls: the innermost ones of a longer chain.
const MAX_CALLS: usize = 12;
/// Crates whose functions do not belong to the user's kernel.
const LIBRARIES: [&str; 4] = ["cutlet", "core", "alloc", "std"];

/// A function on the stack.
#[derive(Debug, PartialEq)]
struct Frame {
    name: String,
    place: Option<Location>,
}

/// Returns the calls that led to `location`, innermost first: the called function, at the place of
/// the call. `None` if the stack is unavailable.
pub(super) fn calls_to(location: Option<&Location>) -> Option<Vec<Note>> {
    let trace = Backtrace::force_capture();
    if trace.status() != BacktraceStatus::Captured {
        return None;
    }
    Some(chain(users(frames(&trace.to_string()))?, location))
}

/// Parses the frames of a backtrace: lines of names, each followed by its place if that is known.
/// Inlined frames have no number.
fn frames(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                frame.place = location_of(place);
            }
            continue;
        }
        let numbered = line.split_once(": ").filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()));
        let name = numbered.map_or(line, |(_, name)| name);
        frames.push(Frame { name: name.to_string(), place: None });
    }
    frames
}

/// Parses `file:line:column`.
fn location_of(text: &str) -> Option<Location> {
    let mut parts = text.rsplitn(3, ':');
    let (column, line, file) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    let file = file.strip_prefix("./").unwrap_or(file).to_string();
    Some(Location { file: file.into(), line, column })
}

/// Returns the user's frames of the kernel; `None` if no kernel begins on this stack.
fn users(frames: Vec<Frame>) -> Option<Vec<Frame>> {
    let root = frames.iter().position(|frame| frame.name.ends_with(ROOT))?;
    Some(frames.into_iter().take(root).filter(is_users).collect_vec())
}

fn is_users(frame: &Frame) -> bool {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let of_library = |place: &Location| {
        let file = place.file.as_ref();
        file.starts_with(own) || file.starts_with("/rustc/") || is_own_relative(file)
    };
    if frame.place.as_ref().is_some_and(of_library) {
        return false;
    }
    // With line tables alone, names have no paths.
    if !frame.name.split('<').next().is_some_and(|name| name.contains("::")) && !frame.name.starts_with('<') {
        return frame.place.is_some();
    }
    // The functions that call closures and kernels do not belong to the user, for any type
    // parameters.
    if frame.name.contains("core::ops::function::") || frame.name.contains(" as cutlet::kernel::") {
        return false;
    }
    // `<A as B>::f` is the user's if `A` or `B` is.
    let name = frame.name.trim_start_matches(['<', '&']);
    let roots = name.split(" as ").map(|path| path.trim_start_matches(['<', '&']).split_once("::"));
    roots.flatten().any(|(root, _)| !LIBRARIES.contains(&root.split(['[', '<']).next().unwrap_or(root)))
}

/// Returns true if this is a file of this crate, with the relative name of a build of the crate
/// itself.
fn is_own_relative(file: &str) -> bool {
    let own = file!().strip_suffix("tile/user_backtrace.rs").unwrap_or(file!());
    file.starts_with(own) && (own.starts_with('/') || file.starts_with("src/tile/") || file.starts_with("src/ops/"))
}

/// Returns one note for each call from one function to another.
fn chain(frames: Vec<Frame>, location: Option<&Location>) -> Vec<Note> {
    // Frames of functions that forward their caller's place are inside of the reported place:
    // skipped.
    let reported = location.and_then(|at| {
        let is_it = |place: &Location| place.line == at.line && place.file.ends_with(at.file.as_ref());
        frames.iter().position(|frame| frame.place.as_ref().is_some_and(is_it))
    });
    let mut frames = frames.into_iter().skip(reported.unwrap_or(0));
    let Some(first) = frames.next() else { return Vec::new() };
    // Prefix of the absolute paths of the stack. It is removed, since rustc reports relative paths.
    let folder = reported.and(first.place.as_ref().zip(location)).and_then(|(place, at)| {
        let folder = place.file.strip_suffix(at.file.as_ref()).filter(|folder| !folder.is_empty());
        folder.map(str::to_string)
    });
    let mut callee = first;
    let mut notes = Vec::new();
    for caller in frames {
        if !is_within(&callee, &caller) && notes.len() < MAX_CALLS {
            let place = caller.place.clone().map(|place| {
                match folder.as_ref().and_then(|f| place.file.strip_prefix(f.as_str())) {
                    Some(file) => Location { file: file.to_string().into(), ..place },
                    None => place,
                }
            });
            let message = match place {
                Some(_) => format!("{} is called here", in_words(&callee.name)),
                None => format!("{} is called by {}", in_words(&callee.name), in_words(&caller.name)),
            };
            notes.push(Note { message, location: place });
        }
        callee = caller;
    }
    notes
}

/// Returns true if `callee` is a closure of the function `caller`: the place of one also shows the
/// other.
fn is_within(callee: &Frame, caller: &Frame) -> bool {
    match (function_of(&callee.name), &callee.place, &caller.place) {
        // A closure without the path of its function: its line is at or below the line of the
        // function.
        ("", Some(inner), Some(outer)) => inner.file == outer.file && outer.line <= inner.line,
        (function, ..) => function == function_of(&caller.name),
    }
}

/// Returns the path of a function, or of the function that contains a closure; "" for a closure
/// without a path.
fn function_of(name: &str) -> &str {
    if name.starts_with("{closure") || name.starts_with("{{closure") {
        return "";
    }
    let end = ["::{{closure}}", "::{closure#"].iter().filter_map(|mark| name.find(mark)).min();
    &name[..end.unwrap_or(name.len())]
}

/// Returns the name for messages: `norm`, `Layer::forward`, or a closure of these.
fn in_words(name: &str) -> String {
    let function = function_of(name);
    let mut parts: Vec<&str> = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ':' if depth == 0 => {
                parts.push(&function[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&function[start..]);
    let parts = parts.into_iter().map(|part| part.split('<').next().unwrap_or_default());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect_vec();
    let is_type = |part: &str| part.starts_with(|c: char| c.is_uppercase());
    let short = match parts[..] {
        [.., owner, last] if is_type(owner) => format!("{owner}::{last}"),
        [.., last] => last.to_string(),
        [] => function.to_string(),
    };
    if function.is_empty() {
        return "a closure".to_string();
    }
    if function.len() < name.len() { format!("a closure of `{short}`") } else { format!("`{short}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   0: std::backtrace::Backtrace::force_capture
             at /rustc/0123/library/std/src/backtrace.rs:331:18
   1: cutlet::tile::context::Trace::push
             at /home/me/.cargo/cutlet/src/tile/context.rs:270:9
   2: app::layers::norm
             at ./src/layers.rs:7:13
      app::layers::Layer<T>::forward
             at ./src/layers.rs:20:9
   3: app::kernel::{{closure}}
             at ./src/main.rs:31:22
   4: app::twice
             at ./src/main.rs:9:5
   5: cutlet::ops::control::fold
             at /home/me/.cargo/cutlet/src/ops/control.rs:70:9
   6: app::kernel
             at ./src/main.rs:30:5
   7: core::ops::function::Fn::call
   8: cutlet::tile::tracer::trace_into_module
   9: app::main
             at ./src/main.rs:50:5
";

    fn told(text: &str, at: Option<Location>) -> Vec<String> {
        let show = |note: Note| match note.location {
            Some(place) => format!("{place}: {}", note.message),
            None => note.message,
        };
        chain(users(frames(text)).unwrap(), at.as_ref()).into_iter().map(show).collect()
    }

    #[test]
    fn calls_are_those_between_functions_of_the_user() {
        let at = Location { file: "src/layers.rs".into(), line: 7, column: 15 };
        let expected = [
            "src/layers.rs:20:9: `norm` is called here",
            "src/main.rs:31:22: `Layer::forward` is called here",
            "src/main.rs:9:5: a closure of `kernel` is called here",
            "src/main.rs:30:5: `twice` is called here",
        ];
        assert_eq!(told(TEXT, Some(at)), expected);
    }

    #[test]
    fn track_caller_functions_are_left_out() {
        let at = Location { file: "src/layers.rs".into(), line: 20, column: 9 };
        assert_eq!(told(TEXT, Some(at))[0], "src/main.rs:31:22: `Layer::forward` is called here");
    }

    #[test]
    fn names_are_reported_without_places() {
        let names: String =
            TEXT.lines().filter(|line| !line.trim().starts_with("at ")).map(|l| format!("{l}\n")).collect();
        let expected = [
            "`norm` is called by `Layer::forward`",
            "`Layer::forward` is called by a closure of `kernel`",
            "a closure of `kernel` is called by `twice`",
            "`twice` is called by `kernel`",
        ];
        assert_eq!(told(&names, None), expected);
    }

    #[test]
    fn tables_of_lines_have_names_without_paths() {
        let text = "   0: norm<f32>
             at ./src/layers.rs:15:5
   1: forward
             at ./src/layers.rs:9:13
   2: {closure#0}
             at ./src/main.rs:21:21
   3: in_region<cutlet::tile::handle::Tile<f32, 2>, app::kernel::{closure_env#0}>
             at /rustc/0123/library/core/src/ops/function.rs:79:5
   4: kernel
             at ./src/main.rs:20:15
   5: cutlet::tile::tracer::trace_into_module
";
        let at = Location { file: "src/layers.rs".into(), line: 15, column: 5 };
        let expected = ["src/layers.rs:9:13: `norm` is called here", "src/main.rs:21:21: `forward` is called here"];
        assert_eq!(told(text, Some(at)), expected);
    }

    #[test]
    fn traits_of_the_user_are_the_users() {
        let is = |name: &str| is_users(&Frame { name: name.into(), place: None });
        assert!(is("<cutlet::tile::handle::Tile<f32,_> as app::Sum>::total"));
        assert!(is("<app::Pair as core::ops::arith::Add>::add"));
        assert!(!is("<cutlet::tile::handle::Tile<T,_> as core::ops::arith::Add<X>>::add"));
        assert!(!is("<F as cutlet::kernel::function::Kernel<(A,)>>::call"));
        assert!(!is("<app::kernel as cutlet::kernel::function::Kernel<(f32,)>>::call"));
        assert!(!is("<&app::kernel::{closure#0} as core::ops::function::FnMut<()>>::call_mut"));
        assert_eq!(in_words("<app::Pair as core::ops::arith::Add>::add"), "`add`");
        assert_eq!(in_words("app::ops::norm::<f32>"), "`norm`");
    }

    #[test]
    fn stacks_without_a_kernel_have_no_calls() {
        assert_eq!(users(frames("   0: <unknown>\n   1: <unknown>\n")), None);
    }
}
