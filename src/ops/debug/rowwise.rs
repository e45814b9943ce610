//! Promise of independent rows.

use crate::element::Element;
use crate::ir::RowwisePromise;
use crate::tile::{Array, caller_location, record};

/// Promises that the rows along an axis are independent of each other, and that extents fix the
/// order of sums: the results of a row have the same bits in every batch.
///
/// * What is stored at row `r` depends on row `r` of the arrays and on constants alone. Arrays with
///   at most `axis` dimensions, numbers, and the arrays of [`Rowwise::constant`] are constants.
/// * No sum depends on the grid, on the number of rows, or on the order of tile blocks.
///
/// The promise is proved from the kernel when it is compiled. Without a proof, the launch is an
/// error with the operation that breaks the promise.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
///     ct::require_rowwise(0);
///     let x = x.load((ct::bid(0), 0), [4, 16]);
///     let e = (x - x.reduce_max(1)).exp();
///     y.store((ct::bid(0), 0), e / e.sum(1));
/// }
///
/// /// The maximum is that of four rows.
/// fn wrong(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
///     ct::require_rowwise(0);
///     let x = x.load((ct::bid(0), 0), [4, 16]);
///     let e = (x - x.reduce_max(..)).exp();
///     y.store((ct::bid(0), 0), e / e.sum(1));
/// }
///
/// let x = ct::Device::cpu().zeros([8, 16])?;
/// let mut y = ct::Device::cpu().zeros([8, 16])?;
/// ct::launch(softmax, 2, (&x, &mut y))?;
/// let error = ct::launch(wrong, 2, (&x, &mut y)).unwrap_err().to_string();
/// assert!(error.contains("combines the rows of a tile"), "{error}");
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn require_rowwise(axis: usize) -> Rowwise {
    let place = caller_location();
    let number = record(|t| {
        t.at(place);
        let loc = t.builder.loc();
        let promises = &mut t.builder.module.rowwise;
        promises.push(RowwisePromise { axis: axis as u32, constants: Vec::new(), loc });
        promises.len() - 1
    });
    Rowwise { number }
}

/// A promise of [`require_rowwise`], to which arrays without rows can be added.
///
/// ```
/// # use cutlet::doctest::*;
/// let scaled = |x: Array<f32, 2>, scale: Array<f32, 1>, y: ArrayMut<f32, 2>| {
///     let promise: ct::ops::Rowwise = ct::require_rowwise(0);
///     promise.constant(scale);
///     y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [4, 16]) * scale.load(0, [16]));
/// };
/// let (x, scale) = (ct::ArraySpec::<f32, 2>::new([8, 16]), ct::ArraySpec::<f32, 1>::new([16]));
/// assert!(ct::inspect(scaled, (x, scale, x.mutable())).ir().is_ok());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rowwise {
    number: usize,
}

impl Rowwise {
    /// Excludes an array, such as the weights of a matrix product: all rows of results may depend
    /// on all of its elements.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn product(x: Array<f32, 2>, w: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    ///     ct::require_rowwise(0).constant(w);
    ///     let (i, j) = (ct::bid(0), ct::bid(1));
    ///     let tiles = x.num_tiles(1, [16, 16]);
    ///     let sum = ct::fold(..tiles, ct::zeros::<f32, 2>([16, 16]), |sum, k| {
    ///         ct::mma(x.load((i, k), [16, 16]), w.load((k, j), [16, 16]), sum)
    ///     });
    ///     y.store((i, j), sum);
    /// }
    ///
    /// let x = ct::ArraySpec::<f32, 2>::new([32, 32]);
    /// assert!(ct::inspect(product, (x, x, x.mutable())).ir().is_ok());
    /// ```
    #[track_caller]
    pub fn constant<T: Element, const R: usize>(self, array: Array<T, R>) -> Rowwise {
        let place = caller_location();
        record(|t| {
            if let Some(data) = t.array_data(array.handle, place) {
                t.builder.module.rowwise[self.number].constants.extend([data.base]);
            }
        });
        self
    }
}
