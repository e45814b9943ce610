//! Rows of `cutlet_kernels::recurrent`.

use cutlet::Device;
use cutlet::element::bf16;
use cutlet_kernels::recurrent::{
    DeltaInputs, GatedDeltaRule, KimiDelta, LogLinearInputs, Mamba2, Mamba2Gradients, Mamba2Inputs, SelectiveInputs,
    SelectiveScan, States, log_linear_attention,
};

use crate::filled::numbers;
use crate::row::{Peak, Row, Work};

/// Bytes of `T = bf16` and of f32, with the operations of products of matrices.
fn work(halves: usize, words: usize, flops: f64) -> Work {
    Work { bytes: (2 * halves + 4 * words) as f64, flops, peak: Peak::F16 }
}

fn delta_rows([batch, tokens, heads, keys, values]: [usize; 5]) -> Vec<Row> {
    let name = |kind: &str| format!("{kind} bf16 {batch} {tokens} {heads} {keys} {values}");
    let rows = batch * tokens * heads;
    // Least products of a chunk of 64 steps: keys by keys and by queries, their use, the inverse,
    // and the state.
    let products = 2 * 64 * (2 * keys + keys + values) + 2 * values * (64 + 3 * keys);
    let flops = (rows * products) as f64;
    let deviation = (keys as f32).sqrt().recip();
    let shape = move |elements: usize| [batch, tokens, heads, elements];
    vec![
        Row::new(
            name("gated_delta_rule"),
            work(rows * 2 * (keys + values), 2 * rows, flops),
            move |device| {
                let k = numbers::<bf16, 4>(device, shape(keys), 0.0, 1.7 * deviation)?;
                let v = numbers::<bf16, 4>(device, shape(values), 0.0, 1.0)?;
                let gates = numbers::<f32, 3>(device, [batch, tokens, heads], -0.05, 0.05)?;
                let rates = numbers::<f32, 3>(device, [batch, tokens, heads], 0.5, 0.3)?;
                Ok((k, v, gates, rates, device.zeros::<bf16, 4>(shape(values))?))
            },
            |(k, v, gates, rates, out)| {
                let (q, k, v, gates, rates) = (k.view(), k.view(), v.view(), gates.view(), rates.view());
                let inputs = DeltaInputs { q, k, v, gates, rates };
                let (rule, stream) = (GatedDeltaRule { scale: 0.088 }, q.device().default_stream());
                rule.chunks(&stream, inputs, None, States::default(), out.view_mut())
            },
        ),
        Row::new(
            name("kimi_delta"),
            work(rows * 2 * (keys + values), rows * (keys + 1), flops),
            move |device| {
                let k = numbers::<bf16, 4>(device, shape(keys), 0.0, 1.7 * deviation)?;
                let v = numbers::<bf16, 4>(device, shape(values), 0.0, 1.0)?;
                let gates = numbers::<f32, 4>(device, shape(keys), -0.05, 0.05)?;
                let rates = numbers::<f32, 3>(device, [batch, tokens, heads], 0.5, 0.3)?;
                Ok((k, v, gates, rates, device.zeros::<bf16, 4>(shape(values))?))
            },
            |(k, v, gates, rates, out)| {
                let (q, k, v, gates, rates) = (k.view(), k.view(), v.view(), gates.view(), rates.view());
                let inputs = DeltaInputs { q, k, v, gates, rates };
                let (rule, stream) = (KimiDelta { scale: 0.088 }, q.device().default_stream());
                rule.chunks(&stream, inputs, None, States::default(), out.view_mut())
            },
        ),
    ]
}

fn step_rows([batch, heads, keys, values]: [usize; 4]) -> Vec<Row> {
    let states = batch * heads * keys * values;
    vec![
        Row::new(
            format!("gated_delta_rule_step bf16 {batch} {heads} {keys} {values}"),
            work(2 * batch * heads * (keys + values), 2 * states + 2 * batch * heads, 0.0),
            move |device| {
                let k = numbers::<bf16, 3>(device, [batch, heads, keys], 0.0, 0.15)?;
                let v = numbers::<bf16, 3>(device, [batch, heads, values], 0.0, 1.0)?;
                let gates = numbers::<f32, 2>(device, [batch, heads], -0.05, 0.05)?;
                let rates = numbers::<f32, 2>(device, [batch, heads], 0.5, 0.3)?;
                let state = numbers::<f32, 4>(device, [batch, heads, keys, values], 0.0, 1.0)?;
                Ok((k, v, gates, rates, state, device.zeros::<bf16, 3>([batch, heads, values])?))
            },
            |(k, v, gates, rates, state, out)| {
                let stream = k.device().default_stream();
                let inputs = [k.view(), k.view(), v.view()];
                let rule = GatedDeltaRule { scale: 0.088 };
                rule.step(&stream, inputs, gates.view(), rates.view(), state.view_mut(), out.view_mut())
            },
        ),
        Row::new(
            format!("kimi_delta_step bf16 {batch} {heads} {keys} {values}"),
            work(2 * batch * heads * (keys + values), 2 * states + batch * heads * (keys + 1), 0.0),
            move |device| {
                let k = numbers::<bf16, 3>(device, [batch, heads, keys], 0.0, 0.15)?;
                let v = numbers::<bf16, 3>(device, [batch, heads, values], 0.0, 1.0)?;
                let gates = numbers::<f32, 3>(device, [batch, heads, keys], -0.05, 0.05)?;
                let rates = numbers::<f32, 2>(device, [batch, heads], 0.5, 0.3)?;
                let state = numbers::<f32, 4>(device, [batch, heads, keys, values], 0.0, 1.0)?;
                Ok((k, v, gates, rates, state, device.zeros::<bf16, 3>([batch, heads, values])?))
            },
            |(k, v, gates, rates, state, out)| {
                let stream = k.device().default_stream();
                let inputs = [k.view(), k.view(), v.view()];
                let rule = KimiDelta { scale: 0.088 };
                rule.step(&stream, inputs, gates.view(), rates.view(), state.view_mut(), out.view_mut())
            },
        ),
    ]
}

fn log_linear([batch, tokens, heads, keys, values]: [usize; 5]) -> Row {
    let rows = batch * tokens * heads;
    let levels = tokens.ilog2() as usize + 1;
    // Products of a chunk of 64 steps, its state, and those with half of the levels of chunks.
    let products = 2 * 64 * (keys + values) + 2 * keys * values * (1 + (levels - 7) / 2);
    Row::new(
        format!("log_linear_attention bf16 {batch} {tokens} {heads} {keys} {values}"),
        work(rows * (2 * values + levels) + 2 * batch * tokens * keys, rows, (rows * products) as f64),
        move |device| {
            let k = numbers::<bf16, 4>(device, [batch, tokens, 1, keys], 0.0, 0.1)?;
            let v = numbers::<bf16, 4>(device, [batch, tokens, heads, values], 0.0, 1.0)?;
            let gates = numbers::<f32, 3>(device, [batch, tokens, heads], -0.05, 0.05)?;
            let factors = numbers::<bf16, 4>(device, [batch, tokens, heads, levels], 0.0, 1.0)?;
            Ok((k, v, gates, factors, device.zeros::<bf16, 4>([batch, tokens, heads, values])?))
        },
        |(k, v, gates, factors, out)| {
            let (q, k, v, gates, factors) = (k.view(), k.view(), v.view(), gates.view(), factors.view());
            let inputs = LogLinearInputs { q, k, v, gates, factors };
            log_linear_attention(&q.device().default_stream(), inputs, None, out.view_mut())
        },
    )
}

fn mamba2_rows([batch, tokens, heads, channels, states]: [usize; 5]) -> Vec<Row> {
    let rows = batch * tokens * heads;
    let products = 2 * 64 * (states + channels) + 4 * states * channels;
    vec![
        Row::new(
            format!("mamba2 bf16 {batch} {tokens} {heads} {channels} {states}"),
            work(rows * (2 * channels + 1) + 2 * batch * tokens * states, 0, (rows * products) as f64),
            move |device| {
                let x = numbers::<bf16, 4>(device, [batch, tokens, heads, channels], 0.0, 1.0)?;
                let dt = numbers::<bf16, 3>(device, [batch, tokens, heads], 0.05, 0.04)?;
                let a = numbers::<f32, 1>(device, [heads], -4.0, 3.0)?;
                let b = numbers::<bf16, 4>(device, [batch, tokens, 1, states], 0.0, 1.0)?;
                Ok((x, dt, a, b, device.zeros::<bf16, 4>([batch, tokens, heads, channels])?))
            },
            |(x, dt, a, b, out)| {
                let (x, dt, a, b) = (x.view(), dt.view(), a.view(), b.view());
                let inputs = Mamba2Inputs { x, dt, dt_bias: None, a, b, c: b, d: Some(a) };
                let stream = x.device().default_stream();
                Mamba2::default().chunks(&stream, inputs, None, States::default(), out.view_mut())
            },
        ),
        Row::new(
            format!("mamba2_gradients bf16 {batch} {tokens} {heads} {channels} {states}"),
            work(rows * (3 * channels + 1) + 2 * batch * tokens * states, rows, 3.0 * (rows * products) as f64),
            move |device| {
                let x = numbers::<bf16, 4>(device, [batch, tokens, heads, channels], 0.0, 1.0)?;
                let dt = numbers::<bf16, 3>(device, [batch, tokens, heads], 0.05, 0.04)?;
                let a = numbers::<f32, 1>(device, [heads], -4.0, 3.0)?;
                let b = numbers::<bf16, 4>(device, [batch, tokens, 1, states], 0.0, 1.0)?;
                let dx = device.zeros::<bf16, 4>([batch, tokens, heads, channels])?;
                let ddt = device.zeros::<f32, 3>([batch, tokens, heads])?;
                let of_group = [batch, tokens, 1, states];
                let (db, dc) = (device.zeros::<f32, 4>(of_group)?, device.zeros::<f32, 4>(of_group)?);
                Ok((x, dt, a, b, (dx, ddt, db, dc), [device.zeros::<f32, 1>([heads])?, device.zeros([heads])?]))
            },
            |(x, dt, a, b, (dx, ddt, db, dc), [da, dd])| {
                let (x, dt, a, b) = (x.view(), dt.view(), a.view(), b.view());
                let inputs = Mamba2Inputs { x, dt, dt_bias: None, a, b, c: b, d: Some(a) };
                let stream = x.device().default_stream();
                let gradients = Mamba2Gradients {
                    x: dx.view_mut(),
                    dt: ddt.view_mut(),
                    a: da.view_mut(),
                    b: db.view_mut(),
                    c: dc.view_mut(),
                    d: dd.view_mut(),
                };
                Mamba2::default().gradients(&stream, inputs, x, None, None, gradients)
            },
        ),
        Row::new(
            format!("mamba2_step bf16 64 {heads} {channels} {states}"),
            work(64 * (heads * 2 * channels + 2 * states), 2 * 64 * heads * channels * states, 0.0),
            move |device| {
                let x = numbers::<bf16, 3>(device, [64, heads, channels], 0.0, 1.0)?;
                let dt = numbers::<bf16, 2>(device, [64, heads], 0.05, 0.04)?;
                let a = numbers::<f32, 1>(device, [heads], -4.0, 3.0)?;
                let b = numbers::<bf16, 3>(device, [64, 1, states], 0.0, 1.0)?;
                let state = device.zeros::<f32, 4>([64, heads, states, channels])?;
                Ok((x, dt, a, b, state, device.zeros::<bf16, 3>([64, heads, channels])?))
            },
            |(x, dt, a, b, state, out)| {
                let stream = x.device().default_stream();
                let inputs = (x.view(), dt.view(), b.view(), b.view());
                let of_heads = (a.view(), None, Some(a.view()));
                Mamba2::default().step(&stream, inputs, of_heads, state.view_mut(), out.view_mut())
            },
        ),
    ]
}

fn selective_rows([batch, tokens, channels, states]: [usize; 4]) -> Vec<Row> {
    let open = move |batch: usize, tokens: usize| {
        move |device: Device| {
            let x = numbers::<bf16, 3>(device, [batch, tokens, channels], 0.0, 1.0)?;
            let dt = numbers::<bf16, 3>(device, [batch, tokens, channels], 0.05, 0.04)?;
            let a = numbers::<f32, 2>(device, [channels, states], -8.0, 7.0)?;
            let b = numbers::<bf16, 3>(device, [batch, tokens, states], 0.0, 1.0)?;
            let state = device.zeros::<f32, 3>([batch, channels, states])?;
            Ok((x, dt, a, b, state, device.zeros::<bf16, 3>([batch, tokens, channels])?))
        }
    };
    let halves = |batch: usize, tokens: usize| batch * tokens * (3 * channels + 2 * states);
    vec![
        Row::new(
            format!("selective_scan bf16 {batch} {tokens} {channels} {states}"),
            work(halves(batch, tokens), channels * states, 0.0),
            open(batch, tokens),
            |(x, dt, a, b, _, out)| {
                let (x, dt, a, b) = (x.view(), dt.view(), a.view(), b.view());
                let inputs = SelectiveInputs { x, dt, dt_bias: None, a, b, c: b, d: None, z: None };
                SelectiveScan::default().tokens(&x.device().default_stream(), inputs, (None, None), out.view_mut())
            },
        ),
        Row::new(
            format!("selective_scan_step bf16 64 {channels} {states}"),
            work(halves(64, 1), channels * states + 2 * 64 * channels * states, 0.0),
            open(64, 1),
            |(x, dt, a, b, state, out)| {
                let (x, dt, a, b) = (x.view(), dt.view(), a.view(), b.view());
                let inputs = SelectiveInputs { x, dt, dt_bias: None, a, b, c: b, d: None, z: None };
                SelectiveScan::default().step(&x.device().default_stream(), inputs, state.view_mut(), out.view_mut())
            },
        ),
    ]
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    [
        delta_rows([4, 4096, 32, 128, 128]),
        delta_rows([1, 8192, 16, 128, 128]),
        step_rows([64, 32, 128, 128]),
        mamba2_rows([8, 4096, 80, 64, 128]),
        selective_rows([8, 4096, 1536, 16]),
        vec![log_linear([2, 4096, 32, 128, 64])],
    ]
    .into_iter()
    .flatten()
    .collect()
}
