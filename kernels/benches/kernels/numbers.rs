//! Rows of `cutlet_kernels::numbers`.

use cutlet::element::{bf16, f8e4m3fn, f8e8m0fnu};
use cutlet::packed::{i3, i4};
use cutlet_kernels::numbers::{
    BlockScale, Code, Distribution, Fft, Rounded, Scales, Seed, Transform, dequantize_groups, fill_random, hadamard,
    quantize_blocks, quantize_e5m6, quantize_groups, quantize_nvfp4, quantize_rows,
};

use crate::filled::numbers;
use crate::row::{Row, Work};

/// 2^24 numbers in all.
fn fft(log: u32) -> Row {
    let (rows, n) = (1usize << (24 - log), 1usize << log);
    let all = (rows * n) as f64;
    // A second pass reads and writes, too.
    let passes = if log > 14 { 2.0 } else { 1.0 };
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

fn fills() -> Vec<Row> {
    let n = 1usize << 28;
    [("uniform", Distribution::Uniform(0.0, 1.0)), ("normal", Distribution::Normal(0.0, 1.0))]
        .map(|(name, distribution)| {
            Row::new(
                format!("fill {name} f32 2^28"),
                Work::bytes(4.0 * n as f64),
                move |device| device.zeros::<f32, 1>([n]),
                move |y| {
                    let seed = Seed { seed: 1, offset: 0 };
                    fill_random(&y.device().default_stream(), y.view_mut(), distribution, seed)
                },
            )
        })
        .into()
}

/// Extents of a quantised matrix.
const SHAPE: [usize; 2] = [8192, 8192];
const ALL: f64 = (SHAPE[0] * SHAPE[1]) as f64;

fn groups<F: Code>(rounded: Rounded) -> Row {
    let kind = if rounded == Rounded::Nearest { "" } else { " stochastic" };
    Row::new(
        format!("quantize {}{kind} groups of 128 bf16 8192 8192", F::NAME),
        Work::bytes(ALL * (2.0 + f64::from(F::BITS) / 8.0 + 4.0 / 128.0)),
        |device| {
            let x = numbers::<bf16, 2>(device, SHAPE, 0.0, 1.0)?;
            Ok((x, device.packed_zeros::<F, 2>(SHAPE)?, device.zeros([SHAPE[0], SHAPE[1] / 128])?))
        },
        move |(x, codes, scales)| {
            quantize_groups(&x.device().default_stream(), x.view(), codes, (scales.view_mut(), None), rounded)
        },
    )
}

fn blocks<S: BlockScale>(name: &str, blocks: Scales) -> Row {
    Row::new(
        format!("quantize {name} bf16 8192 8192"),
        Work::bytes(ALL * 3.0),
        move |device| {
            let x = numbers::<bf16, 2>(device, SHAPE, 0.0, 1.0)?;
            Ok((x, device.zeros::<f8e4m3fn, 2>(SHAPE)?, device.zeros::<S, 2>(blocks.shape(SHAPE))?))
        },
        move |(x, codes, scales)| {
            let results = (codes.view_mut(), scales.view_mut());
            quantize_blocks(&x.device().default_stream(), x.view(), results, blocks, Rounded::Nearest)
        },
    )
}

fn others() -> Vec<Row> {
    let of_rows = Row::new(
        "quantize e4m3 rows bf16 8192 8192",
        Work::bytes(ALL * 3.0),
        |device| {
            let x = numbers::<bf16, 2>(device, SHAPE, 0.0, 1.0)?;
            Ok((x, device.zeros::<f8e4m3fn, 2>(SHAPE)?, device.zeros([SHAPE[0], 1])?))
        },
        |(x, codes, scales)| {
            let results = (codes.view_mut(), scales.view_mut());
            quantize_rows(&x.device().default_stream(), x.view(), results, Rounded::Nearest)
        },
    );
    let nvfp4 = Row::new(
        "quantize nvfp4 bf16 8192 8192",
        Work::bytes(ALL * (2.0 + 0.5 + 1.0 / 16.0)),
        |device| {
            let x = numbers::<bf16, 2>(device, SHAPE, 0.0, 1.0)?;
            let scales = device.zeros([SHAPE[0], SHAPE[1] / 16])?;
            Ok((x, device.full([1], 1e-3f32)?, device.packed_zeros(SHAPE)?, scales))
        },
        |(x, of_tensor, codes, scales)| {
            let (from, to) = ((x.view(), of_tensor.view()), (codes, scales.view_mut()));
            quantize_nvfp4(&x.device().default_stream(), from, to, Rounded::Nearest)
        },
    );
    let inverse = Row::new(
        "dequantize i4 groups of 128 bf16 8192 8192",
        Work::bytes(ALL * (2.0 + 0.5 + 4.0 / 128.0)),
        |device| {
            let scales = device.zeros([SHAPE[0], SHAPE[1] / 128])?;
            Ok((device.packed_zeros::<i4, 2>(SHAPE)?, scales, device.zeros::<bf16, 2>(SHAPE)?))
        },
        |(codes, scales, y)| {
            dequantize_groups(&scales.device().default_stream(), codes, (scales.view(), None), y.view_mut())
        },
    );
    let transform = Row::new(
        "hadamard bf16 8192 4096",
        Work::bytes(4.0 * 8192.0 * 4096.0),
        |device| Ok((numbers::<bf16, 2>(device, [8192, 4096], 0.0, 1.0)?, device.zeros([8192, 4096])?)),
        |(x, y)| hadamard(&x.device().default_stream(), x.view(), y.view_mut(), 1.0 / 64.0),
    );
    let long = Row::new(
        "hadamard bf16 1024 32768",
        Work::bytes(4.0 * 8192.0 * 4096.0),
        |device| Ok((numbers::<bf16, 2>(device, [1024, 32768], 0.0, 1.0)?, device.zeros([1024, 32768])?)),
        |(x, y)| hadamard(&x.device().default_stream(), x.view(), y.view_mut(), 1.0 / 64.0),
    );
    vec![of_rows, nvfp4, inverse, transform, long]
}

/// Returns the rows.
fn e5m6() -> Row {
    Row::new(
        "quantize e5m6 bf16 8192 8192".to_owned(),
        Work::bytes(ALL * 3.5),
        |device| {
            let x = device.full(SHAPE, bf16::from_f32(1.0))?;
            Ok((x, device.zeros::<u32, 3>([SHAPE[0], SHAPE[1] / 8, 3])?, device.zeros([SHAPE[0]])?))
        },
        |(x, words, scales)| quantize_e5m6(&x.device().default_stream(), x.view(), words.view_mut(), scales.view_mut()),
    )
}

pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = (8..=20).map(fft).collect();
    rows.extend(fills());
    let stochastic = Rounded::Stochastic(Seed { seed: 1, offset: 0 });
    rows.extend([groups::<i4>(Rounded::Nearest), groups::<i4>(stochastic), groups::<i8>(Rounded::Nearest)]);
    rows.push(groups::<i3>(Rounded::Nearest));
    rows.push(blocks::<f32>("e4m3 1x128", Scales::Block1x128));
    rows.push(blocks::<f32>("e4m3 128x128", Scales::Block128x128));
    rows.push(blocks::<f8e8m0fnu>("mxfp8", Scales::Block1x32));
    rows.push(e5m6());
    rows.extend(others());
    rows
}
