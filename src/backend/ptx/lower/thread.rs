//! Which element a thread starts at: the thread's part of a layout as index arithmetic.

use std::collections::HashMap;

use super::Lowering;
use crate::backend::ptx::isa::inst::{Operand, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, thread_images};
use crate::layout::Layout;

/// Computed once per kernel: images of the thread-number bits to their value.
#[derive(Debug, Default)]
pub struct ThreadCache {
    linear: HashMap<Vec<u32>, Operand>,
    /// Instructions may be reused only inside the region that made them.
    order: Vec<Vec<u32>>,
}

impl ThreadCache {
    /// Number of entries, for [`ThreadCache::truncate`].
    pub fn mark(&self) -> usize {
        self.order.len()
    }

    /// Forgets what was computed since `mark`.
    pub fn truncate(&mut self, mark: usize) {
        for key in self.order.drain(mark..) {
            self.linear.remove(&key);
        }
    }
}

impl Lowering<'_> {
    /// The XOR of `images[i]` over the set bits `i` of the thread number, as a B32 operand.
    ///
    /// Runs of neighbouring bits whose images are neighbouring bits move together: a shift and a mask.
    pub fn linear_in_thread(&mut self, images: &[u32]) -> Operand {
        if images.iter().all(|&image| image == 0) {
            return Operand::Imm(0);
        }
        if let Some(&value) = self.thread.linear.get(images) {
            return value;
        }
        let tid = self.b.special(Special::TidX);
        let value = self.linear_of(tid, images);
        self.thread.linear.insert(images.to_vec(), value);
        self.thread.order.push(images.to_vec());
        value
    }

    /// The same over the bits of another number.
    pub fn linear_of(&mut self, number: Operand, images: &[u32]) -> Operand {
        let mut total: Option<Operand> = None;
        let mut bit = 0;
        while bit < images.len() {
            let image = images[bit];
            if image == 0 {
                bit += 1;
                continue;
            }
            let mut length = 1;
            if image.is_power_of_two() {
                while images.get(bit + length) == Some(&(image << length)) {
                    length += 1;
                }
            }
            let part = self.field(number, bit, length, images.len());
            let part = if image.is_power_of_two() {
                self.b.shl(Ty::B32, part, image.trailing_zeros())
            } else {
                self.b.mul(Ty::U32, part, image)
            };
            total = Some(match total {
                Some(sum) => self.b.xor(Ty::B32, sum, part),
                None => part,
            });
            bit += length;
        }
        total.unwrap_or(Operand::Imm(0))
    }

    /// The sum of `weights[i]` over the set bits `i` of the thread number, as a B32 operand. No weight is 0.
    ///
    /// Runs of neighbouring bits whose weights double count together.
    pub fn sum_in_thread(&mut self, weights: &[u32]) -> Operand {
        // No images of that length.
        let key = [weights, &[u32::MAX]].concat();
        if let Some(&value) = self.thread.linear.get(&key) {
            return value;
        }
        let tid = self.b.special(Special::TidX);
        let mut total: Option<Operand> = None;
        let mut bit = 0;
        while bit < weights.len() {
            let run = (1..).take_while(|&i| weights.get(bit + i) == Some(&(weights[bit] << i)));
            let length = 1 + run.count();
            let field = self.field(tid, bit, length, weights.len());
            let part = self.b.mul(Ty::U32, field, weights[bit]);
            total = Some(match total {
                Some(sum) => self.b.add(Ty::U32, sum, part),
                None => part,
            });
            bit += length;
        }
        let value = total.unwrap_or(Operand::Imm(0));
        self.thread.linear.insert(key.clone(), value);
        self.thread.order.push(key);
        value
    }

    /// Bits `bit..bit + length` of the thread number, which has `width` bits.
    fn field(&mut self, tid: Operand, bit: usize, length: usize, width: usize) -> Operand {
        let shifted = if bit > 0 { self.b.shr(Ty::U32, tid, bit as u32) } else { tid };
        if bit + length >= width { shifted } else { self.b.and(Ty::B32, shifted, (1u32 << length) - 1) }
    }

    /// The thread's coordinate along `axis` at register slot 0.
    pub fn thread_coordinate(&mut self, layout: &Layout, axis: usize) -> Operand {
        let axis = AxisBits::of(layout.shape(), axis);
        let images: Vec<u32> = thread_images(layout).iter().map(|&image| axis.coordinate(image)).collect();
        self.linear_in_thread(&images)
    }
}
