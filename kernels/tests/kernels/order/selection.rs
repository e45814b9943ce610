//! Histograms, selection and sampling.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::order::{Direction, Draws, Sampling, Selected, greedy, histogram, histogram_even, top_k};

use super::radix_sort::{same, sorted_positions};
use crate::support::{Numbers, device};

#[test]
fn histograms() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let mut numbers = Numbers::new(1);
    for (n, bins) in [(0, 5), (1, 256), (20_000, 256), (9_000, 10_000), (5_000, 1)] {
        let host: Vec<u16> = (0..n).map(|_| (numbers.below(bins + bins / 4 + 2)) as u16).collect();
        let (x, mut counts) = (device.array(&host, [n])?, device.full([bins], 77)?);
        histogram(&stream, x.view(), counts.view_mut())?;
        let mut want = vec![0; bins];
        host.iter().filter(|&&x| usize::from(x) < bins).for_each(|&x| want[usize::from(x)] += 1);
        same(&counts.to_vec()?, &want, "u16");
    }
    let host: Vec<i32> = (0..10_000).map(|_| numbers.below(50) as i32 - 20).collect();
    let (x, mut counts) = (device.array(&host, [10_000])?, device.zeros([16])?);
    histogram(&stream, x.view(), counts.view_mut())?;
    let want: Vec<i32> = (0..16).map(|bin| host.iter().filter(|&&x| x == bin).count() as i32).collect();
    same(&counts.to_vec()?, &want, "i32");
    let host: Vec<f32> = (0..7_000).map(|_| (numbers.below(64) as f32 - 8.0) / 16.0).chain([f32::NAN]).collect();
    let (x, mut counts) = (device.array(&host, [7_001])?, device.zeros([10])?);
    histogram_even(&stream, x.view(), 0.0..2.5, counts.view_mut())?;
    let mut want = vec![0; 10];
    host.iter().filter(|x| (0.0..2.5).contains(*x)).for_each(|x| want[(x * 4.0) as usize] += 1);
    same(&counts.to_vec()?, &want, "f32");
    Ok(())
}

fn check_top_k<T: Number>(host: &[T], [rows, columns, k]: [usize; 3]) -> ct::Result<()> {
    let device = device();
    let x = device.array(host, [rows, columns])?;
    for order in [Selected::Sorted, Selected::Unsorted] {
        let (mut values, mut positions) = (device.zeros::<T, 2>([rows, k])?, device.zeros([rows, k])?);
        top_k(&device.default_stream(), x.view(), (values.view_mut(), positions.view_mut()), order)?;
        let (values, positions) = (values.to_vec()?, positions.to_vec()?);
        for row in 0..rows {
            let of_row: Vec<f32> = host[row * columns..][..columns].iter().map(|x| x.to_f64() as f32).collect();
            let mut want = sorted_positions(&of_row, Direction::Descending)[..k].to_vec();
            let mut got = positions[row * k..][..k].to_vec();
            for (value, &at) in values[row * k..][..k].iter().zip(&got) {
                assert_eq!(value.to_bits(), host[row * columns + at as usize].to_bits(), "value of position {at}");
            }
            if order == Selected::Unsorted {
                want.sort();
                got.sort();
            }
            same(&got, &want, &format!("row {row} of {rows} x {columns}, {k}, {order:?}"));
        }
    }
    Ok(())
}

#[test]
fn largest_elements() -> ct::Result<()> {
    let mut numbers = Numbers::new(2);
    for shape @ [rows, columns, _] in
        [[1, 1, 1], [3, 100, 7], [33, 128, 8], [2, 4096, 256], [2, 4097, 3], [2, 10_000, 2048], [1, 1000, 1000]]
    {
        let host: Vec<f32> = (0..rows * columns).map(|_| numbers.number() as f32).collect();
        check_top_k(&host, shape)?;
    }
    let host: Vec<bf16> = (0..9000).map(|_| bf16::from_f64(numbers.number())).collect();
    check_top_k(&host, [1, 9000, 100])
}

#[test]
fn equal_and_special_elements() -> ct::Result<()> {
    check_top_k(&vec![1.5f32; 10_000], [1, 10_000, 300])?;
    check_top_k(&vec![f32::NEG_INFINITY; 300], [1, 300, 16])?;
    let special = [f32::NAN, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY, -f32::NAN];
    let host: Vec<f32> = (0..9000).map(|i| special[i * i % 7 % 6]).collect();
    check_top_k(&host, [1, 9000, 2000])?;
    check_top_k(&host[..500], [1, 500, 200])?;
    let descending: Vec<f32> = (0..9000).map(|i| -(i as f32)).collect();
    check_top_k(&descending, [1, 9000, 64])
}

#[test]
fn errors_name_shapes() -> ct::Result<()> {
    let device = device();
    let (x, mut values, mut positions) =
        (device.zeros::<f32, 2>([2, 8])?, device.zeros([2, 9])?, device.zeros([2, 9])?);
    let results = (values.view_mut(), positions.view_mut());
    let error = top_k(&device.default_stream(), x.view(), results, Selected::Sorted).expect_err("too many");
    assert!(error.to_string().contains("the 9 largest of 8"), "{error}");
    Ok(())
}

/// Filters of a row.
#[derive(Clone, Copy, Debug)]
struct Of {
    temperature: f64,
    k: usize,
    p: f64,
    min_p: f64,
}

/// Probabilities of the tokens, those not kept zero.
fn kept(logits: &[f64], of: Of) -> Vec<f64> {
    let scaled: Vec<f64> = logits.iter().map(|x| x / of.temperature).collect();
    let max = scaled.iter().fold(f64::MIN, |a, &b| a.max(b));
    let exp: Vec<f64> = scaled.iter().map(|x| (x - max).exp()).collect();
    let mut order: Vec<usize> = (0..exp.len()).collect();
    order.sort_by(|&a, &b| exp[b].total_cmp(&exp[a]));
    let k = if of.k == 0 { exp.len() } else { of.k };
    let least = exp[order[k - 1]];
    let all: f64 = exp.iter().filter(|&&x| x >= least).sum();
    let mut least_p = least;
    let mut sum = 0.0;
    for &at in &order {
        sum += exp[at];
        if sum >= of.p * all {
            least_p = exp[at];
            break;
        }
    }
    let least = least.max(least_p).max(of.min_p);
    exp.iter().map(|&x| if x >= least { x } else { 0.0 }).collect()
}

#[test]
fn sampling() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let (rows, columns) = (24, 4999);
    let mut numbers = Numbers::new(3);
    let host: Vec<f32> = (0..rows * columns).map(|_| (numbers.number() * 6.0) as f32).collect();
    let logits = device.array(&host, [rows, columns])?;
    let draws: Vec<f32> = (0..rows).map(|row| if row == 0 { 0.0 } else { numbers.number().abs() as f32 }).collect();
    let of: Vec<Of> = (0..rows)
        .map(|row| Of {
            temperature: [1.0, 0.5, 2.0][row % 3],
            k: [0, 1, 50, 2000][row % 4],
            p: [1.0, 0.9, 0.3][row / 2 % 3],
            min_p: [0.0, 0.1][row / 12],
        })
        .collect();
    let array = |f: &dyn Fn(&Of) -> f32| device.array(&of.iter().map(f).collect::<Vec<f32>>(), [rows]);
    let (t, p, min_p) = (array(&|of| of.temperature as f32)?, array(&|of| of.p as f32)?, array(&|of| of.min_p as f32)?);
    let k = device.array(&of.iter().map(|of| of.k as i32).collect::<Vec<i32>>(), [rows])?;
    let u = device.array(&draws, [rows])?;
    let mut tokens = device.zeros([rows])?;
    let filtered = Sampling::new().temperature(t.view()).top_k(k.view()).top_p(p.view()).min_p(min_p.view());
    filtered.sample(&stream, logits.view(), Draws::Numbers(u.view()), tokens.view_mut())?;
    for (row, &token) in tokens.to_vec()?.iter().enumerate() {
        let of_row: Vec<f64> = host[row * columns..][..columns].iter().map(|&x| x.into()).collect();
        let kept = kept(&of_row, of[row]);
        let all: f64 = kept.iter().sum();
        let before: f64 = kept[..token as usize].iter().sum::<f64>() / all;
        let (to, u) = (before + kept[token as usize] / all, f64::from(draws[row]));
        assert!(kept[token as usize] > 0.0, "row {row}: token {token} is not kept by {:?}", of[row]);
        // Thresholds of top-p in f32 may differ by a token.
        assert!(before - 2e-4 <= u && u <= to + 2e-4, "row {row}: {before} {u} {to}");
    }
    let first = tokens.to_vec()?;
    filtered.sample(&stream, logits.view(), Draws::Numbers(u.view()), tokens.view_mut())?;
    assert_eq!(tokens.to_vec()?, first);
    Ok(())
}

#[test]
fn seeds_and_greedy() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let (rows, columns) = (200, 4);
    let host: Vec<f32> = (0..rows).flat_map(|_| [0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln(), f32::NEG_INFINITY]).collect();
    let (logits, mut tokens) = (device.array(&host, [rows, columns])?, device.zeros([rows])?);
    Sampling::new().sample(&stream, logits.view(), Draws::Seed { seed: 5, offset: 1 }, tokens.view_mut())?;
    let first = tokens.to_vec()?;
    let count = |token| first.iter().filter(|&&x| x == token).count();
    assert!((70..130).contains(&count(0)) && count(1) > 25 && count(2) > 25 && count(3) == 0, "{}", count(0));
    let zero = device.zeros::<f32, 1>([rows])?;
    let seed = Draws::Seed { seed: 5, offset: 2 };
    Sampling::new().temperature(zero.view()).sample(&stream, logits.view(), seed, tokens.view_mut())?;
    assert_eq!(tokens.to_vec()?, vec![0; rows]);
    let mut numbers = Numbers::new(7);
    let host: Vec<bf16> = (0..3 * 5000).map(|_| bf16::from_f64(numbers.number())).collect();
    let (logits, mut tokens) = (device.array(&host, [3, 5000])?, device.zeros([3])?);
    greedy(&stream, logits.view(), tokens.view_mut())?;
    let want: Vec<i32> = (0..3)
        .map(|row| {
            let of_row: Vec<f64> = host[row * 5000..][..5000].iter().map(|x| x.to_f64()).collect();
            let max = of_row.iter().fold(f64::MIN, |a, &b| a.max(b));
            of_row.iter().position(|&x| x == max).expect("the largest") as i32
        })
        .collect();
    assert_eq!(tokens.to_vec()?, want);
    Ok(())
}
