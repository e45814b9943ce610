//! Inverse of a linear layout.

use super::f2_matrix::Span;
use super::linear_layout::{LANE_BITS, Layout};

impl Layout {
    /// Returns the inverse, `None` if an element is in no register.
    ///
    /// ```
    /// let inverse = cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4).invert().unwrap();
    /// assert_eq!(inverse.place(65), (1, 16, 0));
    /// ```
    pub fn invert(&self) -> Option<Inverse> {
        let span = Span::new(&self.bases());
        let bits = self.num_elements().ilog2();
        let bases = (0..bits).map(|bit| span.solve(1 << bit)).collect::<Option<Vec<u64>>>()?;
        Some(Inverse { bases, register_bits: self.register_bases().len() })
    }
}

/// Inverse of a [`Layout`]: for each element one hardware position that contains it, with as few
/// bits set as replication allows.
///
/// ```
/// let inverse = cutlet::layout::Layout::blocked(&[64], &[0], 2, 1).invert().unwrap();
/// assert_eq!(inverse.place(5), (1, 2, 0));
/// ```
#[derive(Clone, Debug)]
pub struct Inverse {
    /// Hardware bits of each bit of the flat index: registers, lanes, warps from low to high.
    bases: Vec<u64>,
    register_bits: usize,
}

impl Inverse {
    /// Returns the register, lane and warp that contain the element with this flat index.
    ///
    /// ```
    /// // Replicas: the place with the fewest bits.
    /// assert_eq!(cutlet::layout::Layout::blocked(&[8], &[0], 1, 1).invert().unwrap().place(3), (0, 3, 0));
    /// ```
    pub fn place(&self, flat: u32) -> (usize, usize, usize) {
        let bits = self.bases.iter().enumerate().filter(|(bit, _)| flat >> bit & 1 == 1);
        let place = bits.fold(0u64, |sum, (_, basis)| sum ^ basis) as usize;
        let lanes = place >> self.register_bits;
        (place & ((1 << self.register_bits) - 1), lanes & 31, lanes >> LANE_BITS)
    }
}
