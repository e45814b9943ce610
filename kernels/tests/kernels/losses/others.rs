//! Divergence, and losses of policies.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::losses::{Dpo, Grpo, divergence};

use crate::support::{close, device, random};

fn of_rows<T: Number>(rows: usize, columns: usize, temperature: f64) -> ct::Result<()> {
    let stream = device().default_stream();
    let (student, s) = random::<T, 2>(1, [rows, columns], 5.0)?;
    let (teacher, t) = random::<T, 2>(2, [rows, columns], 5.0)?;
    let (mut loss, mut gradient) = (device().zeros::<f32, 1>([rows])?, device().zeros::<T, 2>([rows, columns])?);
    let results = (loss.view_mut(), Some(gradient.view_mut()));
    divergence(&stream, [student.view(), teacher.view()], temperature as f32, 0.5, results)?;
    let logs = |row: &[f64]| -> Vec<f64> {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max) / temperature;
        let log = max + row.iter().map(|x| (x / temperature - max).exp()).sum::<f64>().ln();
        row.iter().map(|x| x / temperature - log).collect()
    };
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for (s, t) in s.chunks(columns).zip(t.chunks(columns)) {
        let (q, p) = (logs(s), logs(t));
        losses.push(p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum());
        gradients.extend(p.iter().zip(&q).map(|(p, q)| 0.5 / temperature * (q.exp() - p.exp())));
    }
    let relative = if T::NAME == "f32" { 1e-4 } else { 1e-2 };
    close(&loss, &losses, 2e-5, 1e-4);
    close(&gradient, &gradients, 1e-6, relative);
    divergence(&stream, [student.view(), teacher.view()], temperature as f32, 0.5, (loss.view_mut(), None))?;
    close(&loss, &losses, 2e-5, 1e-4);
    Ok(())
}

#[test]
fn divergences() -> ct::Result<()> {
    for (rows, columns) in [(3, 1), (5, 9), (2, 300), (1, 20_000)] {
        of_rows::<f32>(rows, columns, 1.0)?;
        of_rows::<bf16>(rows, columns, 2.0)?;
    }
    of_rows::<f32>(1, (1 << 18) + 3, 1.5)
}

#[test]
fn policies() -> ct::Result<()> {
    let (stream, n) = (device().default_stream(), 1500);
    let grpo = Grpo { low: 0.2, high: 0.3, beta: 0.1 };
    let ((entropies, e), (old, o)) = (random::<f32, 1>(1, [n], 1.0)?, random::<f32, 1>(2, [n], 1.0)?);
    let ((reference, r), (advantages, a)) = (random::<f32, 1>(3, [n], 1.0)?, random::<f32, 1>(4, [n], 1.0)?);
    let (mut loss, mut gradient) = (device().zeros::<f32, 1>([n])?, device().zeros::<f32, 1>([n])?);
    let inputs = (old.view(), Some(reference.view()), advantages.view());
    grpo.launch(&stream, entropies.view(), inputs, 2.0, (loss.view_mut(), gradient.view_mut()))?;
    let value = |i: usize, entropy: f64| {
        let ratio = (-entropy - o[i]).exp();
        let above = r[i] + entropy;
        -(ratio * a[i]).min(ratio.clamp(0.8, 1.3) * a[i]) + 0.1 * (above.exp() - above - 1.0)
    };
    close(&loss, &(0..n).map(|i| value(i, e[i])).collect::<Vec<f64>>(), 1e-5, 1e-5);
    let slope = |i: usize| (value(i, e[i] + 1e-6) - value(i, e[i] - 1e-6)) / 1e-6;
    close(&gradient, &(0..n).map(slope).collect::<Vec<f64>>(), 1e-4, 1e-4);
    Ok(())
}

#[test]
fn preferences() -> ct::Result<()> {
    let (stream, [pairs, tokens]) = (device().default_stream(), [3, 1300]);
    let (entropies, e) = random::<f32, 3>(1, [pairs, 2, tokens], 1.0)?;
    let (reference, r) = random::<f32, 2>(2, [pairs, 2], 5.0)?;
    let (mut loss, mut gradient) = (device().zeros::<f32, 1>([pairs])?, device().zeros::<f32, 3>([pairs, 2, tokens])?);
    let results = (loss.view_mut(), gradient.view_mut());
    Dpo { beta: 0.2 }.launch(&stream, entropies.view(), reference.view(), 0.5, results)?;
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let above =
            |which: usize| -e[(pair * 2 + which) * tokens..][..tokens].iter().sum::<f64>() - r[pair * 2 + which];
        let margin = 0.2 * (above(0) - above(1));
        losses.push((-margin).exp().ln_1p());
        let slope = 0.5 * 0.2 / (1.0 + margin.exp());
        gradients.extend((0..2 * tokens).map(|at| if at < tokens { slope } else { -slope }));
    }
    close(&loss, &losses, 1e-4, 1e-4);
    close(&gradient, &gradients, 1e-5, 1e-3);
    Ok(())
}
