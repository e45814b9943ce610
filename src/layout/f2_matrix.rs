//! Linear algebra over F2 on bit columns.
//!
//! A matrix is a slice of columns. Each column is a `u32` whose bits are the rows, at most 32:
//! column `i` is the image of unit vector `i`. The product with a vector is an exclusive or of
//! columns.

use crate::util::collect::CollectVec as _;
/// Returns the image of `input` under the map with these columns. Bits of `input` beyond the last
/// column are ignored.
///
/// ```
/// assert_eq!(cutlet::layout::f2_matrix::apply(&[0b01, 0b11], 0b11), 0b10);
/// ```
pub fn apply(columns: &[u32], input: u32) -> u32 {
    columns.iter().enumerate().filter(|(bit, _)| input >> bit & 1 == 1).fold(0, |sum, (_, image)| sum ^ image)
}

/// Returns the image of `input` like [`apply`], for up to 64 columns.
///
/// ```
/// assert_eq!(cutlet::layout::f2_matrix::apply64(&[0b01, 0b11], 0b11), 0b10);
/// ```
pub fn apply64(columns: &[u32], input: u64) -> u32 {
    columns.iter().enumerate().filter(|(bit, _)| input >> bit & 1 == 1).fold(0, |sum, (_, image)| sum ^ image)
}

/// Returns the dimension of the span of the vectors.
///
/// ```
/// assert_eq!(cutlet::layout::f2_matrix::rank(&[0b01, 0b11, 0b10]), 2);
/// ```
pub fn rank(vectors: &[u32]) -> usize {
    Span::new(vectors).dimension()
}

/// Subspace of F2^32 in echelon form.
///
/// ```
/// let span = cutlet::layout::f2_matrix::Span::new(&[0b011, 0b110]);
/// assert!(span.contains(0b101) && !span.contains(0b001));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Basis vectors with pairwise different leading bits. Each has the set of insertion numbers of
    /// the vectors whose sum it is.
    basis: Vec<(u32, u64)>,
    inserted: u32,
}

impl Span {
    /// Makes the span of the vectors.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::f2_matrix::Span::new(&[1, 2, 3]).dimension(), 2);
    /// ```
    pub fn new(vectors: &[u32]) -> Span {
        let mut span = Span::default();
        vectors.iter().for_each(|&v| {
            span.insert(v);
        });
        span
    }

    /// Adds a vector. Returns true if it was not in the span.
    ///
    /// ```
    /// let mut span = cutlet::layout::f2_matrix::Span::new(&[1, 2]);
    /// assert!(!span.insert(3) && span.insert(4));
    /// ```
    pub fn insert(&mut self, vector: u32) -> bool {
        let (rest, combination) = self.reduce(vector);
        let number = self.inserted;
        self.inserted += 1;
        if rest == 0 {
            return false;
        }
        self.basis.push((rest, combination ^ 1 << number));
        self.basis.sort_by_key(|(v, _)| std::cmp::Reverse(*v));
        true
    }

    /// Returns true if the vector is a combination of the inserted ones.
    ///
    /// ```
    /// assert!(cutlet::layout::f2_matrix::Span::new(&[1, 2]).contains(3));
    /// ```
    pub fn contains(&self, vector: u32) -> bool {
        self.reduce(vector).0 == 0
    }

    /// Returns the set of insertion numbers of the vectors whose sum is `vector`. Only vectors that
    /// were not in the span at their insertion are used.
    ///
    /// ```
    /// let span = cutlet::layout::f2_matrix::Span::new(&[0b011, 0b110]);
    /// assert_eq!((span.solve(0b101), span.solve(0b001)), (Some(0b11), None));
    /// ```
    pub fn solve(&self, vector: u32) -> Option<u64> {
        let (rest, combination) = self.reduce(vector);
        (rest == 0).then_some(combination)
    }

    /// Returns the number of basis vectors.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::f2_matrix::Span::new(&[5, 5]).dimension(), 1);
    /// ```
    pub fn dimension(&self) -> usize {
        self.basis.len()
    }

    fn reduce(&self, vector: u32) -> (u32, u64) {
        self.basis.iter().fold((vector, 0), |(rest, used), &(base, combination)| {
            if rest ^ base < rest { (rest ^ base, used ^ combination) } else { (rest, used) }
        })
    }
}

/// Returns a basis of the intersection of two spans.
///
/// ```
/// assert_eq!(cutlet::layout::f2_matrix::intersection(&[0b001, 0b010], &[0b010, 0b100]), [0b010]);
/// ```
pub fn intersection(a: &[u32], b: &[u32]) -> Vec<u32> {
    // Zassenhaus algorithm: the pairs (a, a) and (b, 0) are reduced by their first halves. The
    // second halves of the rows with first half zero are a basis of the intersection.
    let mut rows: Vec<u64> = a.iter().map(|&v| (v as u64) << 32 | v as u64).collect_vec();
    rows.extend(b.iter().map(|&v| (v as u64) << 32));
    let mut basis: Vec<u64> = Vec::new();
    for mut row in rows {
        for &other in &basis {
            row = row.min(row ^ other);
        }
        if row != 0 {
            basis.push(row);
            basis.sort_by_key(|v| std::cmp::Reverse(*v));
        }
    }
    basis.into_iter().filter(|row| row >> 32 == 0).map(|row| row as u32).collect_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solve_returns_a_combination() {
        let vectors = [0b0110, 0b0011, 0b0101, 0b1000];
        let span = Span::new(&vectors);
        assert_eq!(span.dimension(), 3);
        for target in 0..16u32 {
            let possible = (0..16u32).any(|set| apply(&vectors, set) == target);
            assert_eq!(span.contains(target), possible);
            if let Some(set) = span.solve(target) {
                assert_eq!(apply(&vectors, set as u32), target);
                assert_eq!(set & 0b0100, 0, "dependent vectors are never used");
            }
        }
    }

    #[test]
    fn intersection_by_enumeration() {
        let spaces: [&[u32]; 4] = [&[1, 2, 4], &[3, 5], &[8, 6], &[0b1111, 0b1010]];
        for a in spaces {
            for b in spaces {
                let both = Span::new(&intersection(a, b));
                let (a, b) = (Span::new(a), Span::new(b));
                for v in 0..16 {
                    assert_eq!(both.contains(v), a.contains(v) && b.contains(v), "{v}");
                }
            }
        }
    }
}
