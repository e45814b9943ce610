//! Inline PTX for the elements of tiles.

use crate::dtype::DType;
use crate::element::{ByteSized, Element};
use crate::ir::{Attr, Opcode};
use crate::ops::support::operand::{elementwise, value};
use crate::sealed::Sealed;
use crate::tile::{Place, Source, TileLike, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Operands of [`ptx_elementwise`]: a tuple of one to three tiles or scalars.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn is_operands(_: impl ct::ops::PtxOperands) {}
/// # on_cpu(|| {
/// is_operands((ct::zeros::<f32, 1>([4]), ct::scalar(1i32)));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the operands of `ptx_elementwise`",
    note = "they are a tuple of one to three tiles or scalars: `(x,)`, `(x, y)`, `(x, y, z)`"
)]
pub trait PtxOperands: Sealed + Copy {
    /// Value, element type and type name of each operand.
    #[doc(hidden)]
    fn list(self) -> Vec<(ValueHandle, DType, &'static str)>;
}

macro_rules! operands {
    ($($($name:ident $index:tt)+;)+) => {$(
        impl<$($name: TileLike),+> PtxOperands for ($($name,)+) {
            fn list(self) -> Vec<(ValueHandle, DType, &'static str)> {
                vec![$((self.$index.raw(), $name::Elem::DTYPE, $name::Elem::NAME)),+]
            }
        }
    )+};
}
operands! { A 0; A 0 B 1; A 0 B 1 C 2; }

/// Executes PTX instructions for each element. In `text`, `$0` is the register of the result, and
/// `$1`, `$2`, `$3` are those of the operands. `meaning` computes the same result with operations
/// of this crate.
///
/// Operands are broadcast as those of operators, and the result has their common shape. The back
/// ends `cpu` and `tileir` execute the meaning and ignore the text; `ptx` executes the text. The
/// meaning is therefore the definition, which tests on the cpu device cover. The author is
/// responsible for the agreement of both, bit for bit or up to a rounding.
///
/// | element type | register |
/// |---|---|
/// | `f64`, `f32` | `.f64`, `.f32` |
/// | `f16`, `bf16` | `.b16` |
/// | `i64`, `u64` | `.b64` |
/// | `i32`, `u32` | `.b32` |
/// | `i16`, `u16`, `i8`, `u8` | `.b32`: operands are zero-extended; only the low bits of a result are used |
/// | `bool` | `.pred` |
///
/// The text is inside a PTX scope and may declare registers. It may be executed any number of times
/// for an element, also for unused elements, and in any order.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// The sum of `c` and the magnitudes of the differences of the bytes of `a` and `b`.
/// fn sad(a: Tile<u32, 1>, b: Tile<u32, 1>, c: Tile<u32, 1>) -> Tile<u32, 1> {
///     let meaning = |(a, b, c): (Tile<u32, 1>, Tile<u32, 1>, Tile<u32, 1>)| {
///         (0..4).fold(c, |sum, byte| {
///             let (a, b) = ((a >> (8 * byte)) & 255, (b >> (8 * byte)) & 255);
///             sum + (a.max(b) - a.min(b))
///         })
///     };
///     // SAFETY: it computes what the meaning does, of its operands alone.
///     unsafe { ct::ptx_elementwise("vabsdiff4.u32.u32.u32.add $0, $1, $2, $3;", (a, b, c), meaning) }
/// }
///
/// fn kernel(x: Array<u32, 1>, y: ArrayMut<u32, 1>) {
///     let x = x.load(0, [4]);
///     y.store(0, sad(x, ct::full([4], 0x0105_0a00), ct::ones([4])));
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.array(&[0x0105_0a00, 0, 0x0205_0aff, 0x0001_0001], [4])?, device.zeros([4])?);
/// ct::launch(kernel, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 17, 257, 17]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// The launch returns an error if an element type is not in the table. It also returns an error if
/// the text names an operand that does not exist, has unbalanced braces, or contains a comment.
///
/// # Safety
/// The text computes its result from its operands and has no other effect. It contains no memory
/// access, no jump out of the text, no barrier and no exchange between threads. It is valid PTX for
/// every target of the kernel's launches.
#[track_caller]
#[must_use]
pub unsafe fn ptx_elementwise<Y, O>(text: &str, operands: O, meaning: impl FnOnce(O) -> Y) -> Y
where
    Y: TileLike<Elem: ByteSized>,
    O: PtxOperands,
{
    let place = caller_location();
    // This calls the user's code, whose operations have source locations of their own.
    let meant = meaning(operands);
    let list = operands.list();
    check(place, text, &list, (Y::Elem::DTYPE, Y::Elem::NAME));
    let mut args: Vec<_> = list
        .into_iter()
        .map(|(raw, dtype, elem)| crate::tile::Arg { source: Source::Value(raw), dtype, elem })
        .collect_vec();
    args.push(value(meant));
    elementwise(place, "ptx_elementwise", &args, |t, values, shape| {
        let (&meant, operands) = values.split_last().expect("the meaning is among them");
        let nth = |n: usize| operands[n.min(operands.len() - 1)];
        let attrs = vec![Attr::Text(text.into())];
        t.put(Opcode::InlinePtx, &[nth(0), nth(1), nth(2), meant], attrs, Y::Elem::DTYPE, shape)
    })
}

/// Reports invalid texts and element types without a register.
fn check(place: Place, text: &str, operands: &[(ValueHandle, DType, &'static str)], result: (DType, &'static str)) {
    let report = |message: String, way_out: &str| record(|t| t.report(place, message, &[way_out]));
    let types = operands.iter().map(|&(_, dtype, name)| (dtype, name)).chain([result]);
    for (dtype, name) in types {
        let has_register = !matches!(
            dtype,
            DType::TF32
                | DType::I4
                | DType::F8E4M3FN
                | DType::F8E5M2
                | DType::F8E8M0FNU
                | DType::F8E5M3FNU
                | DType::F4E2M1FN
        );
        if !has_register {
            report(
                format!("`ptx_elementwise` of {name}, which has no register of its own"),
                "take the bits as an integer: `.bitcast::<u8>()`, `.bitcast::<u32>()`",
            );
        }
    }
    if let Err(problem) = check_text(text, operands.len()) {
        report(format!("`ptx_elementwise`: {problem} in \"{text}\""), "\"add.s32 $0, $1, $2;\" adds two operands");
    }
}

/// Checks a text for this number of operands.
///
/// # Errors
/// A description of the defect.
fn check_text(text: &str, operands: usize) -> Result<(), String> {
    if let Some(other) = text.chars().find(|c| !c.is_ascii_graphic() && !c.is_ascii_whitespace()) {
        return Err(format!("a {other:?}"));
    }
    if text.contains("//") || text.contains("/*") || text.contains('"') {
        return Err("a comment or a quoted text".to_string());
    }
    let mut has_result = false;
    for part in text.split('$').skip(1) {
        match part.chars().next().and_then(|digit| digit.to_digit(10)) {
            Some(0) => has_result = true,
            Some(number) if number as usize <= operands => {}
            Some(number) => return Err(format!("operand ${number} of {operands}")),
            None => return Err("a `$` without a number".to_string()),
        }
        if part.chars().nth(1).is_some_and(|next| next.is_ascii_alphanumeric()) {
            return Err("characters after the number of `$`".to_string());
        }
    }
    if !has_result {
        return Err("no result, `$0`,".to_string());
    }
    let mut depth = 0;
    for c in text.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth < 0 {
            break;
        }
    }
    match text.trim_end().chars().last() {
        _ if depth != 0 => Err("a brace without its other one".to_string()),
        Some(';' | '}') => Ok(()),
        _ => Err("no `;` at the end".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_whole_instructions() {
        for good in ["add.s32 $0, $1, $2;", "{ .reg .b32 t; not.b32 t, $1; and.b32 $0, t, $2; }", "mov.b32 $0, 1;\n"] {
            assert_eq!(check_text(good, 2), Ok(()), "{good}");
        }
        for (bad, problem) in [
            ("add.s32 $0, $1, $3;", "operand $3 of 2"),
            ("add.s32 $0, $1, $2", "no `;` at the end"),
            ("mov.b32 $1, $2;", "no result, `$0`,"),
            ("mov.b32 $0, $x;", "a `$` without a number"),
            ("mov.b32 $0, $12;", "characters after the number of `$`"),
            ("} mov.b32 $0, $1; {", "a brace without its other one"),
            ("mov.b32 $0, $1; { ;", "a brace without its other one"),
            ("mov.b32 $0, $1; // nothing", "a comment or a quoted text"),
            ("mov.b32 $0, \u{e9};", "a 'é'"),
        ] {
            assert_eq!(check_text(bad, 2), Err(problem.to_string()), "{bad}");
        }
    }
}
