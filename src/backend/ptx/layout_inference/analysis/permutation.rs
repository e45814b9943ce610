//! Permutations of axes.

/// Returns a permutation attribute as axes.
pub fn as_axes(permutation: &[i32]) -> Vec<usize> {
    permutation.iter().map(|&axis| axis as usize).collect()
}

/// Returns the inverse of a permutation.
pub fn inverse(permutation: &[usize]) -> Vec<usize> {
    let mut result = vec![0; permutation.len()];
    for (i, &axis) in permutation.iter().enumerate() {
        result[axis] = i;
    }
    result
}
