//! Pairs of narrow integers of a word, converted to pairs of halves by their bits.

use super::super::f16x2;
use super::evaluator::Thread;
use super::{op, random, repr};
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Inst, Line, Opcode as Instruction, Operand, Reg, RegClass, Ty};
use crate::dtype::DType;
use crate::ir::{Attr, Opcode, Rounding};
use crate::target::Target;
use crate::types::float_codec::{decode, encode};

/// A field of a word that becomes a half: its first bit in the word and in the half, and its width.
#[derive(Clone, Copy, Debug)]
struct Field {
    start: u32,
    up: u32,
    width: u32,
}

impl Field {
    /// The half with these bits under a fixed exponent: the bits count from a power of two.
    fn half(self, b: &mut Builder, dtype: DType, word: Reg) -> Operand {
        let moved = b.shl(Ty::B32, word, i64::from(self.up.saturating_sub(self.start)));
        let moved = b.shr(Ty::U32, moved, i64::from(self.start.saturating_sub(self.up)));
        let masked = b.and(Ty::B32, moved, ((1i64 << self.width) - 1) << self.up);
        let bits = b.xor(Ty::B32, masked, self.anchor(dtype) as i64);
        let bits = repr::truncate(b, DType::I16, bits);
        repr::from_word(b, dtype, b.low_half_of(bits), 0)
    }

    /// The bits of the power of two whose unit in the last place is that of the field's first bit.
    fn anchor(self, dtype: DType) -> u64 {
        let mantissa = if dtype == DType::F16 { 10 } else { 7 };
        encode(dtype, 2f64.powi(mantissa - self.up as i32), Rounding::NearestEven)
    }
}

fn count(b: &mut Builder, is: impl Fn(&Instruction) -> bool) -> usize {
    b.function().lines.iter().filter(|line| matches!(line, Line::Inst(Inst { op, .. }) if is(op))).count()
}

/// Checks the code of a pair of fields less their powers of two and a constant. `is_short`: one
/// permutation and no pair of halves from one instruction to the next.
fn check(dtype: DType, fields: [Field; 2], center: f64, is_short: bool) {
    let subtraction = op(Opcode::SubF, &[Attr::Rounding(Rounding::NearestEven)]);
    let mut b = Builder::new(Target::SM_90A, "pair", 32);
    let word = b.fresh(RegClass::B32);
    let mut values = fields.map(|field| field.half(&mut b, dtype, word)).to_vec();
    for constants in [fields.map(|field| decode(dtype, field.anchor(dtype))), [center; 2]] {
        let pair = repr::pack_word(&mut b, dtype, &values);
        let numbers = constants.map(|number| encode(dtype, number, Rounding::NearestEven));
        let constant = repr::pack_word(&mut b, dtype, &numbers.map(|bits| repr::constant(dtype, bits)));
        let difference = f16x2::lower(&mut b, &subtraction, dtype, &[pair, constant]).expect("a packed form");
        values = repr::unpack_word(&mut b, dtype, difference);
    }
    let pairs = count(&mut b, |op| matches!(op, Instruction::Mov(Ty::B32)));
    assert!(!is_short || count(&mut b, |op| matches!(op, Instruction::Prmt)) == 1, "{dtype} {fields:?}");
    assert!(!is_short || pairs <= 6, "{dtype} {fields:?}: {pairs} moves");
    let function = b.finish();
    let mut thread = Thread::new(&function);
    let mut state = 7;
    for number in 0..64u64 {
        let bits = if number < 2 { number.wrapping_neg() & 0xffff_ffff } else { random(&mut state) & 0xffff_ffff };
        thread.set(word, bits);
        thread.run();
        for (value, field) in values.iter().zip(fields) {
            let code = (bits >> field.start & ((1 << field.width) - 1)) as f64;
            let center = decode(dtype, encode(dtype, center, Rounding::NearestEven));
            let wanted = encode(dtype, code - center, Rounding::NearestEven);
            let found = thread.get(*value, 16);
            assert_eq!(found, wanted, "{dtype} {field:?} of {bits:#x} less {center}");
        }
    }
}

#[test]
fn fields_of_a_word_become_a_pair_by_one_permutation() {
    for (dtype, room) in [(DType::F16, 10), (DType::BF16, 7)] {
        for width in 1..=7u32 {
            for start in (0..=32 - width).step_by(width as usize) {
                for other in (0..=32 - width).step_by(width as usize) {
                    let up = (start * 5 + other) % (room - width + 1);
                    let fields = [start, other].map(|start| Field { start, up, width });
                    for center in [0.0, 7.5, 8.0, 0.3] {
                        check(dtype, fields, center, false);
                    }
                }
            }
        }
    }
}

#[test]
fn nibbles_and_their_center_need_few_instructions() {
    for start in (0..32).step_by(8) {
        let fields = [start, start + 4].map(|start| Field { start, up: 4, width: 4 });
        check(DType::F16, fields, 7.5, true);
    }
}

/// Checks the code of a pair of fields of two words, or of one. Returns the number of permutations.
fn permutations(dtype: DType, fields: [Field; 2], is_one_word: bool) -> usize {
    let mut b = Builder::new(Target::SM_90A, "pair", 32);
    let words = [(); 2].map(|()| b.fresh(RegClass::B32));
    let words = [words[0], if is_one_word { words[0] } else { words[1] }];
    let halves = [0, 1].map(|i| fields[i].half(&mut b, dtype, words[i]));
    let pair = repr::pack_word(&mut b, dtype, &halves);
    let count = count(&mut b, |op| matches!(op, Instruction::Prmt));
    let function = b.finish();
    let mut thread = Thread::new(&function);
    let mut state = 11;
    for _ in 0..64 {
        let mut bits = [(); 2].map(|()| random(&mut state) & 0xffff_ffff);
        if is_one_word {
            bits[1] = bits[0];
        }
        (0..2).for_each(|i| thread.set(words[i], bits[i]));
        thread.run();
        let half = |i: usize| {
            let Field { start, up, width } = fields[i];
            (bits[i] >> start & ((1 << width) - 1)) << up ^ fields[i].anchor(dtype)
        };
        assert_eq!(thread.get(pair, 32), half(0) | half(1) << 16, "{dtype} {fields:?} of {bits:#x?}");
    }
    count
}

#[test]
fn fields_of_two_words_become_a_pair_by_one_permutation() {
    for (dtype, up) in [(DType::F16, 4), (DType::F16, 0), (DType::BF16, 0), (DType::BF16, 3)] {
        for start in (0..32).step_by(4) {
            for other in (0..32).step_by(4) {
                let fields = [start, other].map(|start| Field { start, up, width: 4 });
                assert_eq!(permutations(dtype, fields, false), 1, "{fields:?}");
            }
        }
    }
}

#[test]
fn fields_at_a_distance_of_16_bits_need_no_permutation() {
    for start in (0..16).step_by(4) {
        let fields = [start, start + 16].map(|start| Field { start, up: 0, width: 4 });
        assert_eq!(permutations(DType::BF16, fields, true), 0, "{fields:?}");
    }
}
