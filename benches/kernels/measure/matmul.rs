//! Matrix product: `cargo bench --bench kernels -- matmul`.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput, Number};
use cutlet::prelude::*;

use super::examples::matmul::{Form, matmul};
use super::harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

options! {
    /// Multiplies an m x k with a k x n matrix.
    {
        /// Element type of the arrays; tf32 are f32 arrays multiplied in tf32.
        "type" element: ElementType = ElementType::F16,
        /// Rows of the result.
        "m" m: Option<usize> = None,
        /// Columns of the result.
        "n" n: Option<usize> = None,
        /// Length of the sums.
        "k" k: Option<usize> = None,
        /// Extents of a tile: rows, columns, and how much of the sums is taken at a time.
        "tile" tile: Option<[usize; 3]> = None,
        /// One block for each multiprocessor, which computes one tile after another, instead of one
        /// tile a block.
        "persistent" persistent: bool = false,
        /// The second matrix is column-major, the fastest order of products of 8-bit floats.
        "columns" columns: bool = false,
        /// Sums of 8-bit floats may keep fewer bits than f32 has; implies `--persistent`.
        "fast-acc" fast_acc: bool = false,
    }
}

choice! {
    /// Element types.
    ElementType {
        F16 = "f16",
        Bf16 = "bf16",
        /// 8-bit floats, with a result of f16.
        E4m3 = "e4m3",
        /// 8-bit integers, with a result of i32.
        I8 = "i8",
        Tf32 = "tf32",
        F32 = "f32",
        F64 = "f64",
    }
}

fn run_as<T, I, Acc, O>(cli: &Cli, tile: [usize; 3], input_error: f64, output_error: f64) -> Result<()>
where
    T: Element + CastTo<I> + Default,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let options = &cli.options;
    let device = options.device()?;
    let size = |given| options.size(given, &device, 4096, 256);
    let (m, n, k) = (size(cli.m), size(cli.n), size(cli.k));
    let tile = cli.tile.unwrap_or(tile);
    let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
    let form = Form { tile, persistent: cli.persistent || cli.fast_acc, fast_sums: cli.fast_acc };
    // A function item has a type of its own; a function pointer would be traced at every launch.
    let kernel = matmul::<T, I, Acc, O>;
    if options.emits() {
        let (a, c) = (ct::ArraySpec::new([m, k]), ct::ArraySpec::new([m, n]).mutable());
        let b = ct::ArraySpec::new([k, n]);
        let b = if cli.columns { b.strides([1, k])? } else { b };
        return options.emit(kernel, (a, b, c, Constant(form)));
    }
    let most = device.num_multiprocessors() * options.blocks_each();
    let blocks = if form.persistent { tiles.min(most) } else { tiles };
    let (host_a, host_b) = (normal(1, m * k, T::from_f64), normal(2, k * n, T::from_f64));
    let bytes = size_of::<T>() * (m * k + k * n) + size_of::<O>() * m * n;
    let mut rotation = Rotation::new(device, bytes, || {
        let mut b = device.zeros([k, n])?.into_shape(if cli.columns { [n, k] } else { [k, n] })?;
        let mut view = b.view_mut();
        view = if cli.columns { view.transpose()? } else { view };
        view.copy_from(&host_b)?;
        Ok((device.array(&host_a, [m, k])?, b, device.zeros::<O, 2>([m, n])?))
    })?;
    let time = rotation.time(options, |(a, b, c)| {
        let b = if cli.columns { b.transpose()? } else { b.view() };
        options.launch(blocks).launch(kernel, (&*a, b, c, Constant(form)))
    })?;
    let result = rotation.first().2.to_vec()?;
    let rows = sample_rows(m);
    let want = expected_rows(&host_a, &host_b, k, n, &rows);
    let error = largest_error(want.len(), |i| result[rows[i / n] * n + i % n].to_f64(), |i| want[i]);
    Report {
        what: format!("matmul {} {m}x{n}x{k}, tile {}x{}x{}", cli.element.name(), tile[0], tile[1], tile[2]),
        device: device.name().to_owned(),
        time,
        work: Work::Flops(2.0 * m as f64 * n as f64 * k as f64),
        error,
        tolerance: 2.0 * input_error + output_error,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    // Half a unit in the last place of tf32 inputs and of the result, and the error of f32 sums.
    let (exact, sums) = (0.0, 2e-6);
    match cli.element {
        ElementType::F16 => run_as::<f16, f16, f32, f16>(cli, [128, 256, 32], exact, 2f64.powi(-11) + sums),
        ElementType::Bf16 => run_as::<bf16, bf16, f32, bf16>(cli, [128, 256, 32], exact, 2f64.powi(-8) + sums),
        // Tensor cores keep about 13 bits of a sum of products of 8-bit floats: of runs of it, or
        // of all.
        ElementType::E4m3 => run_as::<f8e4m3fn, f8e4m3fn, f32, f16>(cli, [256, 128, 128], exact, 2f64.powi(-10)),
        ElementType::I8 => run_as::<i8, i8, i32, i32>(cli, [128, 128, 128], exact, exact),
        ElementType::Tf32 => run_as::<f32, tf32, f32, f32>(cli, [256, 128, 32], 2f64.powi(-11), sums),
        ElementType::F32 => run_as::<f32, f32, f32, f32>(cli, [64, 64, 16], exact, sums),
        ElementType::F64 => run_as::<f64, f64, f64, f64>(cli, [64, 64, 16], exact, 4e-15),
    }
}
