//! Rows of `cutlet_kernels::numbers`.

use cutlet_kernels::numbers::{Fft, Transform};

use crate::row::{Row, Work};

/// 2^24 numbers in all.
fn fft(log: u32) -> Row {
    let (rows, n) = (1usize << (24 - log), 1usize << log);
    let all = (rows * n) as f64;
    // A second pass reads and writes, too.
    let passes = if log > 13 { 2.0 } else { 1.0 };
    Row::new(
        format!("fft c64 {rows} 2^{log}"),
        Work::bytes(16.0 * all * passes),
        move |device| {
            let x = device.zeros::<f32, 2>([rows, 2 * n])?;
            Ok((x, device.zeros([rows, 2 * n])?, Fft::new(device, [rows, n])?))
        },
        |(x, y, plan)| plan.run(&x.device().default_stream(), x.view(), y.view_mut(), Transform::Forward),
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    (8..=20).map(fft).collect()
}
