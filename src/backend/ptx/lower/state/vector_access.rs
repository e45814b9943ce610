//! Vector accesses: packs registers into memory words and back.
//!
//! An access has the bytes of its elements in storage: one byte for bool, half a byte for 4-bit
//! types, the even element in the low bits. Elements narrower than 32 bits are transferred in
//! 32-bit words if the access has at least 4 bytes. Halves then arrive in pairs, and bytes in
//! fours.

use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, Reg, RegClass, Space, Ty};
use crate::backend::ptx::scalar::repr;
pub use crate::backend::ptx::smem::allocation::{run_bytes, shared_type};
use crate::dtype::DType;
use crate::util::collect::CollectVec as _;

/// Form of an access: type, register class, number of registers.
#[derive(Clone, Copy)]
struct Form {
    ty: Ty,
    class: RegClass,
    count: usize,
}

impl Form {
    fn new(dtype: DType, count: usize) -> Form {
        let bits = dtype.storage_bits() as usize * count;
        if dtype.storage_bits() >= 32 || count == 1 {
            return Form { ty: repr::memory_ty(dtype), class: storage_class(dtype), count };
        }
        match bits {
            8 => Form { ty: Ty::U8, class: RegClass::B32, count: 1 },
            16 => Form { ty: Ty::U16, class: RegClass::B32, count: 1 },
            _ => Form { ty: Ty::B32, class: RegClass::B32, count: bits / 32 },
        }
    }
}

/// Returns the class of a loaded register. A predicate is loaded as a byte.
fn storage_class(dtype: DType) -> RegClass {
    match repr::class(dtype) {
        RegClass::Pred => RegClass::B32,
        class => class,
    }
}

/// Loads a scalar kernel parameter. Returns its value and its bytes.
pub fn param(b: &mut Builder, dtype: DType) -> (Operand, u32) {
    let form = Form::new(dtype, 1);
    let address = b.param(crate::backend::ptx::isa::emit::Param::Scalar(form.ty));
    let raw = b.fresh(form.class);
    b.ld_to(&[raw], Space::Param, form.ty, &address.into(), MemMods::default(), None);
    (elements(b, dtype, &[raw.into()], 1)[0], run_bytes(dtype, 1))
}

/// Loads adjacent elements. If `guard` is false, each element has the bits of `padding`.
pub fn load(
    b: &mut Builder,
    space: Space,
    dtype: DType,
    count: usize,
    addr: &Addr,
    mods: MemMods,
    guard: Option<(Reg, u64)>,
) -> Vec<Operand> {
    let form = Form::new(dtype, count);
    let dsts = b.fresh_vec(form.class, form.count);
    match guard {
        Some((pred, padding)) => {
            let fill = Operand::Imm(repeat(padding, dtype.storage_bits(), form.class.bits()));
            for &dst in &dsts {
                b.mov_to(dst, fill);
            }
            b.guarded(pred, false, |b| b.ld_to(&dsts, space, form.ty, addr, mods, None));
        }
        None => b.ld_to(&dsts, space, form.ty, addr, mods, None),
    }
    let raw: Vec<Operand> = dsts.into_iter().map(Operand::from).collect_vec();
    elements(b, dtype, &raw, count)
}

/// Stores adjacent elements, if `guard` is true.
pub fn store(
    b: &mut Builder,
    space: Space,
    dtype: DType,
    values: &[Operand],
    addr: &Addr,
    mods: MemMods,
    guard: Option<Reg>,
) {
    let form = Form::new(dtype, values.len());
    let single_half = values.len() == 1 && form.class == RegClass::B16;
    let words = if dtype.storage_bits() >= 32 || single_half { values.to_vec() } else { words(b, dtype, values) };
    let registers: Vec<Operand> = words.into_iter().map(|word| b.reg(word, form.class).into()).collect_vec();
    match guard {
        Some(pred) => b.guarded(pred, false, |b| b.st_vec(space, form.ty, addr, &registers, mods)),
        None => b.st_vec(space, form.ty, addr, &registers, mods),
    }
}

/// Stores the bits of `padding` to adjacent elements, if `inside` is false.
pub fn store_padding(
    b: &mut Builder,
    space: Space,
    dtype: DType,
    count: usize,
    addr: &Addr,
    (inside, padding): (Reg, u64),
) {
    let form = Form::new(dtype, count);
    let fill = b.reg(Operand::Imm(repeat(padding, dtype.storage_bits(), form.class.bits())), form.class);
    let registers = vec![Operand::from(fill); form.count];
    b.guarded(inside, true, |b| b.st_vec(space, form.ty, addr, &registers, MemMods::default()));
}

/// Packs elements narrower than 32 bits into 32-bit words, the first one in the low bits. The last
/// word is padded with zeros.
pub fn words(b: &mut Builder, dtype: DType, values: &[Operand]) -> Vec<Operand> {
    let per_word = (32 / dtype.storage_bits()) as usize;
    values
        .chunks(per_word)
        .map(|chunk| {
            if chunk.len() == 1 {
                return repr::to_word(b, dtype, chunk[0]);
            }
            let mut chunk = chunk.to_vec();
            chunk.resize(per_word, repr::constant(dtype, 0));
            repr::pack_word(b, dtype, &chunk)
        })
        .collect_vec()
}

/// Unpacks words, the inverse of [`words`]. Wider elements are returned unchanged.
pub fn elements(b: &mut Builder, dtype: DType, raw: &[Operand], count: usize) -> Vec<Operand> {
    if dtype.storage_bits() >= 32 {
        return raw.to_vec();
    }
    if count == 1 {
        let narrow = matches!(raw[0], Operand::Reg(reg) if reg.class == RegClass::B16);
        return vec![if narrow { raw[0] } else { repr::from_word(b, dtype, raw[0], 0) }];
    }
    let mut result = Vec::with_capacity(count);
    for &word in raw {
        let left = count - result.len();
        if left >= (32 / dtype.storage_bits()) as usize {
            result.extend(repr::unpack_word(b, dtype, word));
        } else {
            result.extend((0..left as u32).map(|lane| repr::from_word(b, dtype, word, lane)));
        }
    }
    result
}

/// Repeats `bits` (of an element of `width` bits) over a word of `word` bits, sign-extended.
fn repeat(bits: u64, width: u32, word: u32) -> i64 {
    let element = bits & (u64::MAX >> (64 - width));
    let value = (0..word).step_by(width as usize).fold(0, |value, shift| value | (element << shift));
    ((value << (64 - word)) as i64) >> (64 - word)
}
