//! Messages of a running kernel: prints and assertions.

use std::fmt::Arguments;

use super::format::{Message, traced};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Type, Value};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Scalar, Source, Tile, Trace, caller_location, record};

/// Prints when the kernel runs, once for each tile block that executes the call.
/// [`print!`](crate::print!) and [`println!`](crate::println!) call it with [`format_args!`].
///
/// Values of the kernel are formatted like other values: `{x}`, `{x:8.3}`, `{n:#x}`, `{x:e}`. A
/// tile prints as nested brackets, with the format applied to each element. The formats are those
/// of C:
///
/// * On the cpu back end, a tile of more than 1000 elements has the first and last three along each
///   axis, as in NumPy: `[0, 1, 2, ..., 1021, 1022, 1023]`. On a GPU it has all of them.
/// * A float without precision has six significant digits (`%g`).
/// * A bool is 0 or 1.
/// * There is no binary format.
/// * Text is aligned to the left or right, and filled with blanks or zeros.
///
/// Host values are formatted during tracing.
///
/// The output of one block is in program order; the order of blocks is unspecified. On the cpu back
/// end, the text is written to standard output after the launch, block by block.
///
/// On a GPU, the text is in a buffer of the driver (1 MiB, in which new text overwrites old text).
/// The driver writes it when the host waits, without Rust's buffer of standard output. One call of
/// the driver's `printf` has at most 32 numbers; longer texts may be interleaved with those of
/// other blocks.
///
/// ```
/// use cutlet as ct;
///
/// fn hello(x: ct::Array<f32, 1>) {
///     let (i, x) = (ct::bid(0), x.load(ct::bid(0), [4]));
///     ct::println!("block {i} of {}: {x:.1}", ct::num_blocks(0)); // block 0 of 2: [0.0, 0.5, 1.0, 1.5]
///     ct::print(format_args!("their sum is {}\n", x.sum(0)));
/// }
///
/// let x = ct::Device::cpu().from_fn([8], |[i]| i as f32 / 2.0)?;
/// ct::launch(hello, 2, (&x,))?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn print(message: Arguments<'_>) {
    let (place, message) = (caller_location(), Message::of(message));
    if let Some((format, values)) = traced(place, "print", &message).filter(|(format, _)| !format.is_empty()) {
        record(|t| {
            if t.admits(place, Effect::Other, 0) {
                let token = t.builder.module.intern(Type::Token);
                t.emit(Opcode::Print, &[&values, &[]], vec![Attr::Text(format.into())], vec![], &[token]);
            }
        });
    }
}

/// Conditions of [`assert`](fn@assert): `Scalar<bool>`, or `Tile<bool, R>`, of which every element
/// must be true.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::bid(0).eq(0)); // a scalar
/// ct::assert!(ct::arange(0..4).lt(4), "every element");
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be asserted",
    note = "an assertion takes a `Scalar<bool>` or a `Tile<bool, R>`; what is known while tracing goes into Rust's own \
            `assert!`"
)]
pub trait AssertCondition: Sealed + Copy {
    #[doc(hidden)]
    fn source(self) -> Source;
}

impl AssertCondition for Scalar<bool> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}

impl<const R: usize> AssertCondition for Tile<bool, R> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}

/// Asserts a condition when the kernel runs. If it is false, or an element of it, the launch or a
/// later synchronization returns an error. [`assert!`](crate::assert!) calls this function with
/// [`format_args!`].
///
/// The error is an [`Error::Execution`](crate::Error::Execution) with the source location of the
/// call, the message with its values, a failing element, and the tile block. Values in the message
/// are scalars, or tiles that broadcast to the shape of the condition; the message has their
/// failing element. Of several failures one is reported.
///
/// * On the cpu back end the launch stops and returns the error.
/// * On a GPU the next call that waits for the device returns the error, in any thread of the
///   program. The kernel continues, including the failing block.
/// * With Tile IR a failure invalidates the context: later calls of the driver fail.
///
/// ```
/// use cutlet as ct;
///
/// fn roots(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     let (i, x) = (ct::bid(0), x.load(ct::bid(0), [4]));
///     ct::assert!(x.ge(0.0), "the root of {x} in block {i}");
///     y.store(i, x.sqrt());
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.array(&[4.0, 1.0, -2.5, 0.0], [4])?, device.zeros([4])?);
/// let error = ct::launch(roots, 1, (&x, &mut y)).unwrap_err().to_string();
/// assert!(error.contains("assertion failed: the root of -2.5 in block 0 (element [2])"), "{error}");
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn assert(condition: impl AssertCondition, message: Arguments<'_>) {
    let (place, message) = (caller_location(), Message::of(message));
    let source = condition.source();
    let text = match message.plain() {
        Some(text) => Some((text, Vec::new())),
        None => traced(place, "assert", &message),
    };
    record(|t| {
        t.at(place);
        let Source::Value(raw) = source else { return };
        let (Some(condition), Some((text, values))) = (t.check_usable(raw, place), text) else { return };
        let shape = t.shape(raw);
        let args: Option<Vec<Value>> = values.into_iter().map(|value| argument(t, place, value, &shape)).collect();
        let Some(args) = args else { return };
        if t.admits(place, Effect::Other, 0) {
            t.emit(Opcode::Assert, &[&[condition], &args], vec![Attr::Text(text.into())], vec![], &[]);
        }
    });
}

/// Returns a value in the message of an assertion over `shape`: a scalar, or a tile broadcast to
/// the shape. Returns `None` after an error.
fn argument(t: &mut Trace, place: Place, value: Value, shape: &[i64]) -> Option<Value> {
    let own = t.builder.module.shape(value).to_vec();
    let dtype: DType = t.builder.module.dtype(value);
    if own.iter().all(|&extent| extent == 1) {
        return Some(if own.is_empty() { value } else { t.put(Opcode::Reshape, &[value], vec![], dtype, &[]) });
    }
    let fits = own.len() == shape.len() && own.iter().zip(shape).all(|(&own, &wanted)| own == wanted || own == 1);
    if fits {
        return Some(t.stretch(value, shape));
    }
    let message = format!("`assert`: a tile of shape {own:?} in the message, and the condition has shape {shape:?}");
    let way_out =
        "of a tile the element is shown for which the condition fails: reduce it, or assert about its elements";
    t.report_at_definition(place, message, value, way_out);
    None
}

/// Prints when the kernel runs; see [`print`](fn@crate::print). The arguments are those of Rust's
/// `print!`.
///
/// The prelude does not contain this macro, because it would hide that of Rust.
///
/// ```
/// # use cutlet as ct;
/// # ct::Launch::new(2).backend(ct::Backend::Cpu).launch(|| {
/// ct::print!("{} ", ct::bid(0));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[macro_export]
macro_rules! print {
    ($($message:tt)+) => { $crate::print(::std::format_args!($($message)+)) };
}

/// Prints a line when the kernel runs; see [`print`](fn@crate::print). The arguments are those of
/// Rust's `println!`.
///
/// ```
/// # use cutlet as ct;
/// # ct::Launch::new(2).backend(ct::Backend::Cpu).launch(|| {
/// ct::println!("block {}: {:?}", ct::bid(0), ct::arange_from(4, 0.0f32, 0.5));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[macro_export]
macro_rules! println {
    () => { $crate::print(::std::format_args!("\n")) };
    ($($message:tt)+) => { $crate::print(::std::format_args!("{}\n", ::std::format_args!($($message)+))) };
}

/// Asserts a condition when the kernel runs: a false condition is an error of the launch or of a
/// later synchronization. See [`assert`](fn@crate::assert).
///
/// Rust's `assert!` checks conditions that are known during tracing.
///
/// ```
/// # use cutlet as ct;
/// # let result = ct::Launch::new(2).backend(ct::Backend::Cpu).launch(|| {
/// ct::assert!(ct::bid(0).lt(1), "there is a block {}", ct::bid(0));
/// # }, ());
/// # assert!(result.unwrap_err().to_string().contains("there is a block 1"));
/// ```
#[macro_export]
macro_rules! assert {
    ($condition:expr $(,)?) => { $crate::assert($condition, ::std::format_args!("")) };
    ($condition:expr, $($message:tt)+) => { $crate::assert($condition, ::std::format_args!($($message)+)) };
}
