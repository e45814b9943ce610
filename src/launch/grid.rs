//! The grid of a launch: how many tile blocks along each of three axes.

use crate::error::{Error, Result};

/// Most tile blocks along each axis: what CUDA allows.
const LIMITS: [i64; 3] = [i32::MAX as i64, 65_535, 65_535];

/// Numbers of tile blocks along the axes 0, 1 and 2; axes that are not given have one.
///
/// Made from one to three integers: `8`, `[8, 4]`, `(m.div_ceil(128), 1, batches)`. At most 2^31 - 1
/// along axis 0 and 65535 along the others. A launch with a 0 among them does nothing.
///
/// ```
/// use cutlet::Grid;
/// assert_eq!(Grid::from(5), Grid::from([5usize, 1]));
/// assert_eq!(Grid::from((2u32, 3u32)), Grid::from([2, 3, 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid([i64; 3]);

impl Grid {
    /// The grid as the hardware takes it; `None` when there is nothing to run.
    #[track_caller]
    pub(super) fn checked(self) -> Result<Option<[u32; 3]>> {
        let fits = self.0.iter().zip(LIMITS).all(|(&n, limit)| (0..=limit).contains(&n));
        if !fits {
            return Err(self.refused());
        }
        Ok(if self.0.contains(&0) { None } else { Some(self.0.map(|n| n as u32)) })
    }

    #[cold]
    #[track_caller]
    fn refused(self) -> Error {
        Error::argument(format!(
            "grid {:?} is outside of the limits {LIMITS:?}: put the largest number first, \
             or let a block do more than one tile",
            self.0
        ))
    }
}

macro_rules! grid_from {
    ($($int:ident)+) => {$(
        impl From<$int> for Grid {
            fn from(x: $int) -> Grid {
                Grid::from([x])
            }
        }

        impl<const N: usize> From<[$int; N]> for Grid {
            fn from(extents: [$int; N]) -> Grid {
                const { assert!(N >= 1 && N <= 3, "a grid has one to three axes") };
                let mut grid = [1; 3];
                for (axis, n) in grid.iter_mut().zip(extents) {
                    *axis = i64::try_from(n).unwrap_or(i64::MAX);
                }
                Grid(grid)
            }
        }

        impl From<($int,)> for Grid {
            fn from((x,): ($int,)) -> Grid {
                Grid::from([x])
            }
        }

        impl From<($int, $int)> for Grid {
            fn from((x, y): ($int, $int)) -> Grid {
                Grid::from([x, y])
            }
        }

        impl From<($int, $int, $int)> for Grid {
            fn from((x, y, z): ($int, $int, $int)) -> Grid {
                Grid::from([x, y, z])
            }
        }
    )+};
}
grid_from!(i32 u32 i64 u64 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!(Grid::from([3, 2]).checked().unwrap(), Some([3, 2, 1]));
        assert_eq!(Grid::from((7, 0, 9)).checked().unwrap(), None);
        assert!(Grid::from(-1).checked().is_err());
        assert!(Grid::from([1, 65_536]).checked().is_err());
        assert!(Grid::from(usize::MAX).checked().is_err());
        assert_eq!(Grid::from(i32::MAX).checked().unwrap(), Some([i32::MAX as u32, 1, 1]));
    }
}
