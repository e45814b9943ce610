//! Rows of `cutlet_kernels::norms`.

use cutlet_kernels::softmax;

use crate::row::{Row, Work};

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let shape = [1, 1, 8192, 8192];
    vec![Row::new(
        "softmax f32 8192 8192",
        Work::bytes(8.0 * 8192.0 * 8192.0),
        move |device| Ok((device.full(shape, 1.0f32)?, device.zeros::<f32, 4>(shape)?)),
        |(x, y)| softmax(&x.device().default_stream(), x.view(), y.view_mut()),
    )]
}
