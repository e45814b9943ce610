//! Conditions that a launch checks on the host.

use std::fmt::Arguments;

use super::format::{Message, traced};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Def, Opcode, Value};
use crate::ops::support::region_builder::Condition;
use crate::tile::{Place, Trace, caller_location, record};

/// Requires a condition, which every launch of the kernel checks on the host before the kernel
/// runs. If it is false, the launch returns an [`Error::Argument`](crate::Error::Argument) with
/// this source location and the message with its values. [`require!`](crate::require!) calls this
/// function with [`format_args!`].
///
/// Condition and message may depend only on extents, strides, scalar arguments, host values and
/// [`num_blocks`](crate::num_blocks()). The call is outside of loops and branches. A host `bool` is
/// checked during tracing.
///
/// The compiler derives facts from the condition, and can then omit checks and use wider accesses:
///
/// * a number is a multiple of a power of two: `(n % 16).eq(0)`,
/// * two numbers are equal,
/// * a number has a constant bound,
/// * an access is inside of its array: by relations of extents, grid, loops and branches.
///
/// The check costs about a microsecond in a launch with new numbers, and almost nothing for numbers
/// of an earlier launch. A kernel without conditions has no cost.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn product(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>) {
///     ct::require!(a.extent(1).eq(b.extent(0)), "inner extents {} and {}", a.extent(1), b.extent(0));
///     let (i, j) = (ct::bid(0), ct::bid(1));
///     let sum = ct::fold(..a.num_tiles(1, [16, 16]), ct::zeros([16, 16]), |sum, k| {
///         ct::mma(a.load((i, k), [16, 16]), b.load((k, j), [16, 16]), sum)
///     });
///     c.store((i, j), sum);
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b, mut c) = (device.full([16, 20], 1.0)?, device.full([30, 16], 1.0)?, device.zeros([16, 16])?);
/// let error = ct::launch(product, [1, 1], (&a, &b, &mut c)).unwrap_err();
/// assert!(matches!(&error, ct::Error::Argument(problem) if problem.message == "inner extents 20 and 30"));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// The launches of an exported kernel are outside of this crate:
/// [`ExportedKernel::fits`](crate::aot::ExportedKernel::fits) checks its conditions.
#[track_caller]
pub fn require(condition: impl Condition, message: Arguments<'_>) {
    let (place, message) = (caller_location(), Message::of(message));
    if let Some(holds) = condition.known() {
        let text = message.plain().unwrap_or_else(|| "a condition of the kernel does not hold".into());
        if !holds {
            record(|t| t.report(place, text, &["the condition is known while the kernel is traced"]));
        }
        return;
    }
    let source = condition.source();
    let text = match message.plain() {
        Some(text) => Some((text, Vec::new())),
        None => traced(place, "require", &message),
    };
    record(|t| {
        t.at(place);
        let (Some(condition), Some((text, values))) = (t.scalar(place, source, DType::I1), text) else { return };
        if t.builder.open_blocks().len() > 1 {
            let way_out = "a launch checks it before anything runs: write it outside, at the beginning of the kernel";
            return t.report(place, "`require` within a loop, a branch or a closure of elements", &[way_out]);
        }
        let late = std::iter::once(condition).chain(values.iter().copied()).find_map(|value| found_late(t, value));
        if let Some((value, what)) = late {
            let message = format!("`require`: this depends on {what}, which no launch knows");
            let way_out = "check it in the kernel with `ct::assert!`";
            return t.report_at_definition(place, message, value, way_out);
        }
        if let Some(args) = values.into_iter().map(|value| scalar(t, place, value)).collect::<Option<Vec<Value>>>() {
            t.emit(Opcode::Assert, &[&[condition], &args], vec![Attr::Text(text.into())], vec![], &[]);
            t.require_last();
        }
    });
}

/// Returns a scalar value of the message.
fn scalar(t: &mut Trace, place: Place, value: Value) -> Option<Value> {
    let shape = t.builder.module.shape(value).to_vec();
    if shape.is_empty() {
        return Some(value);
    }
    let message = format!("`require`: a tile of shape {shape:?} in the message");
    t.report_at_definition(place, message, value, "numbers of the launch are scalars");
    None
}

/// Returns a value that `value` depends on and that is unknown before the kernel runs, if any, with
/// its name in messages.
pub(crate) fn found_late(t: &Trace, value: Value) -> Option<(Value, &'static str)> {
    let module = &t.builder.module;
    let mut seen = rustc_hash::FxHashSet::default();
    let mut rest = vec![value];
    while let Some(value) = rest.pop().filter(|_| seen.len() < 100_000) {
        if !seen.insert(value) {
            continue;
        }
        // Arguments are parameters of the kernel, because no inner block is open.
        let Def::Result(id, _) = module.def(value) else { continue };
        let op = module.op(id);
        let what = match (op.code, op.code.spec().effect) {
            (Opcode::GetTileBlockId, _) => "`ct::bid`",
            (Opcode::GetGlobal, _) => "a global",
            (_, Effect::Read | Effect::Write | Effect::ReadWrite | Effect::Other) => "memory",
            (Opcode::Reduce | Opcode::Scan, _) => "a reduction of a tile",
            (_, Effect::Region) => "a loop or a branch",
            (_, Effect::Pure | Effect::Terminator) => {
                rest.extend(&op.operands);
                continue;
            }
        };
        return Some((value, what));
    }
    None
}

/// Requires a condition, which every launch of the kernel checks on the host before the kernel
/// runs; see [`require`](fn@crate::require).
///
/// Rust's `assert!` checks conditions that are known during tracing.
///
/// ```
/// # use cutlet::doctest::*;
/// fn halves(x: ArrayMut<f32, 1>) {
///     ct::require!((x.extent(0) % 4).eq(0), "{} elements", x.extent(0));
///     x.store(ct::bid(0), x.load(ct::bid(0), [4]) * 0.5);
/// }
///
/// let (mut good, mut bad) = (ct::Device::cpu().full([8], 1.0)?, ct::Device::cpu().full([9], 1.0)?);
/// ct::launch(halves, 2, (&mut good,))?;
/// assert!(ct::launch(halves, 3, (&mut bad,)).unwrap_err().to_string().contains("9 elements"));
/// # Ok::<(), ct::Error>(())
/// ```
#[macro_export]
macro_rules! require {
    ($condition:expr $(,)?) => {
        $crate::require($condition, ::std::format_args!("a condition of the kernel does not hold: {}", stringify!($condition)))
    };
    ($condition:expr, $($message:tt)+) => { $crate::require($condition, ::std::format_args!($($message)+)) };
}
