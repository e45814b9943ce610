//! Decomposition of extents into powers of two, the largest one first.

use crate::util::collect::CollectVec as _;
/// Returns start and length of each part of an extent.
pub fn powers_of_two(extent: i64) -> Vec<(i64, i64)> {
    let lengths = (0..63).rev().map(|bit| 1 << bit).filter(|bit| extent & bit != 0);
    // The start of a part is the sum of all larger parts.
    lengths.map(|length| (extent & !(2 * length - 1), length)).collect_vec()
}

/// Returns true if a shape has an extent that is split.
pub fn is_split(shape: &[i64]) -> bool {
    shape.iter().any(|extent| extent.count_ones() != 1)
}

/// Grid of the boxes of a shape, which are numbered in row-major order of their coordinates.
#[derive(Clone, Debug)]
pub struct Grid {
    axes: Vec<Vec<(i64, i64)>>,
}

impl Grid {
    pub fn new(shape: &[i64]) -> Grid {
        Grid { axes: shape.iter().map(|&extent| powers_of_two(extent)).collect_vec() }
    }

    /// Returns the number of parts along an axis.
    pub fn count(&self, axis: usize) -> usize {
        self.axes[axis].len()
    }

    /// Returns start and length of a part along an axis.
    pub fn part(&self, axis: usize, number: usize) -> (i64, i64) {
        self.axes[axis][number]
    }

    /// Returns the coordinates of all boxes in order: the index of the part along each axis.
    pub fn places(&self) -> Vec<Vec<usize>> {
        let counts: Vec<usize> = self.axes.iter().map(Vec::len).collect_vec();
        let mut all = vec![Vec::new()];
        for count in counts {
            all = all.into_iter().flat_map(|place| (0..count).map(move |n| [&place[..], &[n]].concat())).collect_vec();
        }
        all
    }

    /// Returns the number of the box at these coordinates.
    pub fn index(&self, place: &[usize]) -> usize {
        place.iter().zip(&self.axes).fold(0, |index, (number, parts)| index * parts.len() + number)
    }

    /// Returns the start of the box at these coordinates.
    pub fn starts(&self, place: &[usize]) -> Vec<i64> {
        place.iter().zip(&self.axes).map(|(&number, parts)| parts[number].0).collect_vec()
    }

    /// Returns the extents of the box at these coordinates.
    pub fn extents(&self, place: &[usize]) -> Vec<i64> {
        place.iter().zip(&self.axes).map(|(&number, parts)| parts[number].1).collect_vec()
    }

    /// Returns the coordinates of the first box along an axis, for all coordinates along the other
    /// axes.
    pub fn places_across(&self, axis: usize) -> Vec<Vec<usize>> {
        self.places().into_iter().filter(|place| place[axis] == 0).collect_vec()
    }
}

/// Traversal of a box: the row-major indices of its elements in their order, as the first index
/// with extents and strides. For shapes with the same number of elements, boxes with equal
/// traversals hold the same elements in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Traversal {
    first: i64,
    strides: Vec<(i64, i64)>,
}

impl Traversal {
    pub fn new(shape: &[i64], starts: &[i64], extents: &[i64]) -> Traversal {
        let (mut stride, mut first) = (1, 0);
        let mut strides: Vec<(i64, i64)> = Vec::new();
        for axis in (0..shape.len()).rev() {
            first += starts[axis] * stride;
            if extents[axis] > 1 {
                match strides.last_mut() {
                    Some((count, step)) if *count * *step == stride => *count *= extents[axis],
                    _ => strides.push((extents[axis], stride)),
                }
            }
            stride *= shape[axis];
        }
        Traversal { first, strides }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_split_from_the_largest_part() {
        assert_eq!(powers_of_two(192), [(0, 128), (128, 64)]);
        assert_eq!(powers_of_two(7), [(0, 4), (4, 2), (6, 1)]);
        assert_eq!(powers_of_two(64), [(0, 64)]);
        let grid = Grid::new(&[3, 4, 96]);
        let places = grid.places();
        assert_eq!(places.len(), 4);
        assert!(places.iter().enumerate().all(|(i, place)| grid.index(place) == i));
        assert_eq!((grid.starts(&places[3]), grid.extents(&places[3])), (vec![2, 0, 64], vec![1, 4, 32]));
    }

    #[test]
    fn boxes_of_the_same_elements_have_equal_traversals() {
        let whole = Traversal::new(&[128, 192], &[0, 128], &[128, 64]);
        assert_eq!(whole, Traversal::new(&[128, 3, 64], &[0, 2, 0], &[128, 1, 64]));
        assert_eq!(whole, Traversal::new(&[2, 64, 192], &[0, 0, 128], &[2, 64, 64]));
        assert_ne!(whole, Traversal::new(&[128, 192], &[0, 64], &[128, 64]));
        assert_eq!(Traversal::new(&[4, 1, 8], &[1, 0, 0], &[2, 1, 8]), Traversal::new(&[32], &[8], &[16]));
    }
}
