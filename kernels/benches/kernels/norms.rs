//! Rows of `cutlet_kernels::norms`.

use cutlet::element::{bf16, f16};
use cutlet::{DeviceArray, Element};
use cutlet_kernels::norms::{
    Gate, Pairs, add_rms_norm, gated, gated_backward, group_norm, group_norm_backward, layer_norm_backward,
    rms_norm_backward, rotary_pair, sinkhorn, softmax_backward, sparsemax,
};
use cutlet_kernels::{Number, layer_norm, rms_norm, softmax};

use crate::filled::numbers;
use crate::row::{Row, Work};

/// Bytes of a number of arrays.
fn bytes<T: Element>(arrays: usize, rows: usize, columns: usize) -> Work {
    Work::bytes((arrays * rows * columns * size_of::<T>()) as f64)
}

/// A call of matrices of one shape, and a vector of a row.
fn row<T: Number>(
    name: &str,
    [rows, columns]: [usize; 2],
    arrays: usize,
    call: impl Fn(&mut [DeviceArray<T, 2>], &mut [DeviceArray<T, 1>; 3]) -> cutlet::Result<()> + Copy + 'static,
) -> Row {
    Row::new(
        format!("{name} {} {rows} {columns}", T::NAME),
        bytes::<T>(arrays, rows, columns),
        move |device| {
            let matrices: cutlet::Result<Vec<_>> =
                (0..arrays).map(|_| numbers::<T, 2>(device, [rows, columns], 0.0, 1.0)).collect();
            let vector = || numbers::<T, 1>(device, [columns], 0.0, 1.0);
            Ok((matrices?, [vector()?, vector()?, vector()?]))
        },
        move |(matrices, vectors)| call(matrices, vectors),
    )
}

fn of_softmax<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("softmax", shape, 2, |arrays, _| {
        let [x, y] = arrays else { return Ok(()) };
        softmax(&x.device().default_stream(), x.view(), y.view_mut())
    })
}

fn of_sparsemax<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("sparsemax", shape, 2, |arrays, _| {
        let [x, y] = arrays else { return Ok(()) };
        sparsemax(&x.device().default_stream(), x.view(), y.view_mut())
    })
}

fn of_sinkhorn(count: usize) -> Row {
    Row::new(
        format!("sinkhorn f32 {count} 4 4"),
        bytes::<f32>(2, count, 16),
        move |device| Ok((device.zeros::<f32, 3>([count, 4, 4])?, device.zeros::<f32, 3>([count, 4, 4])?)),
        |(x, y)| sinkhorn(&x.device().default_stream(), x.view(), y.view_mut(), 10, 1e-6),
    )
}

fn of_softmax_backward<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("softmax_backward", shape, 3, |arrays, _| {
        let [y, dy, dx] = arrays else { return Ok(()) };
        softmax_backward(&y.device().default_stream(), [y.view(), dy.view()], dx.view_mut())
    })
}

fn of_rms_norm<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("rms_norm", shape, 2, |arrays, [weight, ..]| {
        let [x, y] = arrays else { return Ok(()) };
        rms_norm(&x.device().default_stream(), x.view(), weight.view(), y.view_mut(), 1e-6)
    })
}

fn of_add_rms_norm<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("add_rms_norm", shape, 4, |arrays, [weight, ..]| {
        let [x, residual, sum, y] = arrays else { return Ok(()) };
        let results = [sum.view_mut(), y.view_mut()];
        add_rms_norm(&x.device().default_stream(), [x.view(), residual.view()], weight.view(), results, 1e-6)
    })
}

fn of_layer_norm<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("layer_norm", shape, 2, |arrays, [weight, bias, _]| {
        let [x, y] = arrays else { return Ok(()) };
        let vectors = [weight.view(), bias.view()];
        layer_norm(&x.device().default_stream(), x.view(), vectors, y.view_mut(), 1e-6)
    })
}

fn of_rms_norm_backward<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("rms_norm_backward", shape, 3, |arrays, [weight, dweight, _]| {
        let [x, dy, dx] = arrays else { return Ok(()) };
        let (inputs, gradients) = ([x.view(), dy.view()], (dx.view_mut(), dweight.view_mut()));
        rms_norm_backward(&x.device().default_stream(), inputs, None, weight.view(), gradients, 1e-6)
    })
}

fn of_layer_norm_backward<T: Number>(shape: [usize; 2]) -> Row {
    row::<T>("layer_norm_backward", shape, 3, |arrays, [weight, dweight, dbias]| {
        let [x, dy, dx] = arrays else { return Ok(()) };
        let gradients = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
        let stream = x.device().default_stream();
        layer_norm_backward(&stream, [x.view(), dy.view()], None, weight.view(), gradients, 1e-6)
    })
}

fn of_gated<T: Number>(name: &'static str, gate: Gate, shape: [usize; 2]) -> Row {
    row::<T>(name, shape, 3, move |arrays, _| {
        let [a, b, y] = arrays else { return Ok(()) };
        gated(&a.device().default_stream(), [a.view(), b.view()], y.view_mut(), gate)
    })
}

fn of_gated_backward<T: Number>(name: &'static str, gate: Gate, shape: [usize; 2]) -> Row {
    row::<T>(name, shape, 5, move |arrays, _| {
        let [a, b, dy, da, db] = arrays else { return Ok(()) };
        let gradients = [da.view_mut(), db.view_mut()];
        gated_backward(&a.device().default_stream(), [a.view(), b.view(), dy.view()], gradients, gate)
    })
}

/// Queries and keys of `heads` heads, in memory as (batch, tokens, heads, dim).
fn of_rotary(pairs: Pairs, name: &str) -> Row {
    let [batch, tokens, q, k, dim] = [1, 16384, 32, 8, 128];
    Row::new(
        format!("rotary_pair {name} bf16 {batch} {tokens} {q}+{k} {dim}"),
        bytes::<bf16>(2, batch * tokens, (q + k) * dim),
        move |device| {
            let make = |heads: usize| device.zeros::<bf16, 4>([batch, tokens, heads, dim]);
            let angles = || device.zeros::<bf16, 2>([tokens, dim / 2]);
            Ok(([make(q)?, make(k)?, make(q)?, make(k)?], [angles()?, angles()?]))
        },
        move |([q, k, of_q, of_k], [cos, sin])| {
            let order = [0, 2, 1, 3];
            let operands = [q.view().permute(order)?, k.view().permute(order)?];
            let results = [of_q.view_mut().permute(order)?, of_k.view_mut().permute(order)?];
            rotary_pair(&cos.device().default_stream(), operands, [cos.view(), sin.view()], results, pairs)
        },
    )
}

fn of_group_norm(shape: [usize; 4], backward: bool) -> Row {
    let [n, c, h, w] = shape;
    let name = if backward { "group_norm_backward" } else { "group_norm" };
    Row::new(
        format!("{name} f16 {n} {c} {h} {w} 32"),
        bytes::<f16>(if backward { 3 } else { 2 }, n * c, h * w),
        move |device| {
            let (array, vector) =
                (|| numbers::<f16, 4>(device, shape, 0.0, 1.0), || numbers::<f16, 1>(device, [c], 0.0, 1.0));
            Ok(([array()?, array()?, array()?], [vector()?, vector()?, vector()?]))
        },
        move |([x, dy, y], [weight, bias, other])| {
            let stream = x.device().default_stream();
            match backward {
                false => group_norm(&stream, x.view(), 32, [weight.view(), bias.view()], y.view_mut(), 1e-5),
                true => {
                    let gradients = (y.view_mut(), [bias.view_mut(), other.view_mut()]);
                    group_norm_backward(&stream, [x.view(), dy.view()], 32, weight.view(), gradients, 1e-5)
                }
            }
        },
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![of_softmax::<f32>([8192, 8192]), of_softmax::<bf16>([4096, 16384])];
    rows.push(of_sinkhorn(1 << 20));
    rows.extend([of_sparsemax::<f32>([4096, 8192]), of_sparsemax::<bf16>([4096, 32768])]);
    // 2^29 bytes of an array at each length, as quack's benchmarks.
    rows.extend((10..19).step_by(2).map(|log| of_softmax::<bf16>([1 << (28 - log), 1 << log])));
    rows.extend([10, 13, 16].map(|log| of_softmax_backward::<bf16>([1 << (27 - log), 1 << log])));
    for shape in [[16384, 4096], [4096, 16384]] {
        rows.extend([of_rms_norm::<bf16>(shape), of_add_rms_norm::<bf16>(shape), of_layer_norm::<f16>(shape)]);
        rows.extend([of_rms_norm_backward::<bf16>(shape), of_layer_norm_backward::<bf16>(shape)]);
        rows.push(of_gated::<bf16>("swiglu", Gate::Silu, shape));
        rows.push(of_gated_backward::<bf16>("swiglu_backward", Gate::Silu, shape));
    }
    rows.extend([of_rms_norm::<bf16>([1 << 17, 1024]), of_rms_norm::<f32>([1 << 10, 1 << 17])]);
    rows.push(of_rms_norm_backward::<bf16>([1 << 10, 1 << 17]));
    rows.push(of_gated::<bf16>("geglu", Gate::GeluTanh, [16384, 4096]));
    rows.push(of_gated_backward::<bf16>("geglu_backward", Gate::GeluTanh, [16384, 4096]));
    rows.extend([of_rotary(Pairs::Halves, "halves"), of_rotary(Pairs::Adjacent, "adjacent")]);
    for shape in [[16, 320, 64, 64], [4, 320, 128, 128]] {
        rows.extend([of_group_norm(shape, false), of_group_norm(shape, true)]);
    }
    rows
}
