//! Places of the elements of an operand: candle's layouts with as many axes as a kernel has.

use candle_core::{Layout, Result, Tensor, bail};
use cutlet as ct;
use cutlet::DeviceView;
use cutlet::element::Element;

/// Elements at `start` and the sums of multiples of the strides after it.
#[derive(Clone, Copy, Debug)]
pub struct Place<const R: usize> {
    /// The first element's place in the storage.
    pub start: usize,
    /// Extents.
    pub shape: [usize; R],
    /// In elements.
    pub strides: [usize; R],
}

/// Blocks of a grid along its second and third axis.
const MAX_BLOCKS: usize = 65535;

impl<const R: usize> Place<R> {
    /// The layout of a tensor with just these axes.
    pub fn of(name: &str, layout: &Layout) -> Result<Place<R>> {
        let (Ok(shape), Ok(strides)) = (layout.dims().try_into(), layout.stride().try_into()) else {
            bail!("{name}: a tensor of shape {:?}, not of rank {R}", layout.dims())
        };
        Ok(Place { start: layout.start_offset(), shape, strides })
    }

    /// The layout of a tensor with as many axes as a kernel has: leading ones are added, or joined
    /// where their strides permit.
    pub fn fitted(name: &str, layout: &Layout) -> Result<Place<R>> {
        let (mut dims, mut strides) = (layout.dims().to_vec(), layout.stride().to_vec());
        while dims.len() > R && dims.len() > 1 {
            match (dims[0], dims[1]) {
                (1, _) => {}
                (_, 1) => strides[1] = strides[0],
                (_, inner) if strides[0] == inner * strides[1] => {}
                _ => bail!(
                    "{name}: a tensor of shape {:?} and strides {:?} is none of {R} axes: `contiguous` makes one",
                    layout.dims(),
                    layout.stride()
                ),
            }
            let outer = dims.remove(0);
            dims[0] *= outer;
            strides.remove(0);
        }
        let mut place = Place { start: layout.start_offset(), shape: [1; R], strides: [1; R] };
        let Some(first) = R.checked_sub(dims.len()) else {
            bail!("{name}: a tensor of shape {dims:?} for a kernel of no axes")
        };
        place.shape[first..].copy_from_slice(&dims);
        place.strides[first..].copy_from_slice(&strides);
        // An axis of one element steps over all that is within.
        for d in (0..first).rev() {
            place.strides[d] = if d + 1 < R { (place.shape[d + 1] * place.strides[d + 1]).max(1) } else { 1 };
        }
        Ok(place)
    }

    /// Returns true if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns true if the strides, in order of their size, prove that elements do not overlap. A
    /// broadcast tensor has overlapping elements.
    pub fn is_apart(&self) -> bool {
        let mut axes: Vec<_> =
            (0..R).filter(|&d| self.shape[d] > 1).map(|d| (self.strides[d], self.shape[d])).collect();
        axes.sort_unstable();
        let room = |room, (stride, extent): (usize, usize)| (stride >= room).then_some(room + (extent - 1) * stride);
        self.is_empty() || axes.into_iter().try_fold(1, room).is_some()
    }
}

/// Returns the tensor itself if kernels can access its elements; else a contiguous copy.
pub fn reachable<const R: usize>(x: &Tensor, place: impl Fn(&Layout) -> Result<Place<R>>) -> Result<Tensor> {
    match place(x.layout()) {
        Ok(place) if place.is_apart() => Ok(x.clone()),
        _ => x.contiguous(),
    }
}

/// A vector that arrived with leading axes of one element.
pub fn vector<T: Element>(x: DeviceView<'_, T, 4>) -> ct::Result<DeviceView<'_, T, 1>> {
    x.reshape([x.shape()[3]])
}

/// A matrix that arrived with leading axes of one element.
pub fn matrix<T: Element>(x: DeviceView<'_, T, 4>) -> ct::Result<DeviceView<'_, T, 2>> {
    x.reshape([x.shape()[2], x.shape()[3]])
}

/// Axes from the first to the last but one, as few as describe them: those of one element are left
/// out, and adjacent axes that are contiguous are merged. Innermost first.
fn merged(dims: &[usize], strides: &[usize]) -> Vec<(usize, usize)> {
    let mut axes: Vec<(usize, usize)> = Vec::new();
    for (&extent, &stride) in dims.iter().zip(strides).rev().filter(|(extent, _)| **extent != 1) {
        match axes.last_mut() {
            Some((inner, step)) if stride == *inner * *step => *inner *= extent,
            _ => axes.push((extent, stride)),
        }
    }
    axes
}

impl Place<4> {
    /// The rows along the last axis of a tensor of any rank, on a grid of three axes.
    pub fn rows(name: &str, layout: &Layout) -> Result<Place<4>> {
        let (Some((&row, dims)), Some((&step, strides))) = (layout.dims().split_last(), layout.stride().split_last())
        else {
            bail!("{name}: a tensor of rank 0 has no rows")
        };
        let axes = merged(dims, strides);
        let (mut shape, mut place) = ([1, 1, 1, row], [0, 0, 0, step]);
        if axes.len() > 3 || axes.iter().skip(1).any(|&(extent, _)| extent > MAX_BLOCKS) {
            let (dims, strides) = (layout.dims(), layout.stride());
            bail!(
                "{name}: the rows of a tensor of shape {dims:?} and strides {strides:?} lie in too many places: `contiguous` puts them together"
            )
        }
        // An axis of one element steps over all that is within, which spoils no kernel's knowledge
        // of the addresses.
        let mut whole = row * step;
        for d in 0..3 {
            let (extent, stride) = axes.get(d).copied().unwrap_or((1, whole));
            (shape[2 - d], place[2 - d]) = (extent, stride);
            whole = extent * stride;
        }
        Ok(Place { start: layout.start_offset(), shape, strides: place })
    }

    /// As a matrix, where all rows are one axis; `None` where they are not.
    pub fn matrix(&self) -> Option<Place<2>> {
        let [a, b, rows, columns] = self.shape;
        let strides = [self.strides[2], self.strides[3]];
        (a * b == 1).then_some(Place { start: self.start, shape: [rows, columns], strides })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Shape;

    fn layout(dims: &[usize], strides: &[usize]) -> Layout {
        Layout::new(Shape::from(dims), strides.to_vec(), 7)
    }

    #[test]
    fn contiguous_axes_merge() -> Result<()> {
        let place = Place::rows("x", &layout(&[2, 3, 4, 5], &[60, 20, 5, 1]))?;
        assert_eq!((place.shape, place.strides[2..].to_vec(), place.start), ([1, 1, 24, 5], vec![5, 1], 7));
        assert!(place.matrix().is_some());
        let heads = Place::rows("x", &layout(&[2, 4, 3, 5], &[60, 5, 20, 1]))?;
        assert_eq!((heads.shape, heads.strides), ([2, 4, 3, 5], [60, 5, 20, 1]));
        assert!(heads.matrix().is_none());
        let column = Place::rows("x", &layout(&[1, 6, 1, 5], &[0, 1, 9, 6]))?;
        assert_eq!((column.shape, column.strides[2..].to_vec()), ([1, 1, 6, 5], vec![1, 6]));
        let vector = Place::rows("x", &layout(&[5], &[2]))?;
        assert_eq!((vector.shape, vector.strides[3]), ([1, 1, 1, 5], 2));
        Ok(())
    }

    #[test]
    fn axes_are_added_and_joined() -> Result<()> {
        let place = Place::<2>::fitted("x", &layout(&[2, 3, 5], &[15, 5, 1]))?;
        assert_eq!((place.shape, place.strides), ([6, 5], [5, 1]));
        let place = Place::<3>::fitted("x", &layout(&[5], &[2]))?;
        assert_eq!((place.shape, place.strides), ([1, 1, 5], [10, 10, 2]));
        let place = Place::<2>::fitted("x", &layout(&[4, 1, 5], &[7, 99, 1]))?;
        assert_eq!((place.shape, place.strides), ([4, 5], [7, 1]));
        assert!(Place::<2>::fitted("x", &layout(&[2, 3, 5], &[5, 10, 1])).is_err());
        Ok(())
    }

    #[test]
    fn too_large_grids_are_errors_with_shapes() {
        let message = Place::rows("x", &layout(&[2, 2, 2, 2, 3], &[1000, 1, 100, 10, 2])).unwrap_err().to_string();
        assert!(message.contains("[2, 2, 2, 2, 3]") && message.contains("[1000, 1, 100, 10, 2]"), "{message}");
        assert!(Place::rows("x", &layout(&[], &[])).is_err());
        assert!(Place::<2>::of("x", &layout(&[2, 3, 4], &[12, 4, 1])).unwrap_err().to_string().contains("[2, 3, 4]"));
    }
}
