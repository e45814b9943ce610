//! `pack` and `unpack` of sub-byte elements, within each thread.

use crate::backend::ptx::isa::inst::{Cmp, Operand, RegClass, Ty};
use crate::backend::ptx::layout_inference::{group_bits, grouped, packed_bits, parted, ratio};
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::OpId;
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Lowers `pack` and `unpack`.
    pub fn pack_or_unpack(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let (from, to) = (self.info.element_type(source), self.info.element_type(result));
        let Tile { layout, regs: old } = self.operand()?;
        let (joined, parts) = ratio(from, to);
        let bits = group_bits(&layout, joined).ok_or("the elements of a byte are in several threads")?;
        let groups = grouped(&layout, &bits);
        let mut regs = Vec::with_capacity(groups.num_registers() * parts as usize);
        for group in 0..groups.num_registers() {
            // The index of the group in the remaining register bits, and its elements in the other
            // bits.
            let mut rest = group;
            let mut base = 0;
            for bit in (0..layout.register_bases().len()).filter(|bit| !bits.contains(bit)) {
                base |= (rest & 1) << bit;
                rest >>= 1;
            }
            let member =
                |number: usize| bits.iter().enumerate().map(|(i, bit)| (number >> i & 1) << bit).sum::<usize>();
            let elements: Vec<Operand> = (0..joined as usize).map(|number| old[base | member(number)]).collect_vec();
            let words = self.join_words(from, &elements);
            self.split_words(to, &words, parts, &mut regs);
        }
        let layout = parted(&groups, parts);
        self.values.define(result, Tile { layout, regs: regs.into() });
        Ok(())
    }

    /// Packs adjacent elements into 32-bit words, the first one in the low bits.
    fn join_words(&mut self, dtype: DType, elements: &[Operand]) -> Vec<Operand> {
        let bits = packed_bits(dtype);
        if bits >= 32 {
            return elements.iter().flat_map(|&element| self.pack_words(dtype, &[element])).collect_vec();
        }
        let per_word = (32 / bits) as usize;
        let mut words = Vec::with_capacity(elements.len().div_ceil(per_word));
        for chunk in elements.chunks(per_word) {
            let mut word = repr::to_word(&mut self.b, dtype, chunk[0]);
            for (index, &element) in (1..).zip(&chunk[1..]) {
                let element = repr::to_word(&mut self.b, dtype, element);
                let moved = self.b.shl(Ty::B32, element, index * bits);
                word = self.b.or(Ty::B32, word, moved);
            }
            words.push(word);
        }
        words
    }

    /// Extracts `count` elements from words.
    fn split_words(&mut self, dtype: DType, words: &[Operand], count: u32, out: &mut Vec<Operand>) {
        let bits = packed_bits(dtype);
        for number in 0..count {
            let first_bit = number * bits;
            let word = words[(first_bit / 32) as usize];
            out.push(match bits {
                64 => self.unpack_words(dtype, words, 1)[0],
                32 => self.unpack_words(dtype, &[word], 1)[0],
                _ => {
                    let field = self.b.bfe(Ty::U32, word, first_bit % 32, bits);
                    match repr::class(dtype) {
                        RegClass::Pred => self.b.setp(Cmp::Ne, Ty::B32, field, 0).into(),
                        _ => repr::from_word(&mut self.b, dtype, field, 0),
                    }
                }
            });
        }
    }
}
